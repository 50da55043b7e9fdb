#!/usr/bin/env bash
# with_card.sh COMMAND…: runs a command on the imitated cards that build.py has built.
#
#   IMITATION_CARDS=1              cards of the machine, at most 8
#   IMITATION_MEMORY_MIB=81559     memory of each
#   IMITATION_CONTEXT_MIB=512      what a process takes of a card when it opens it
#   IMITATION_USED_MIB=0:2048,…    memory that another program uses, CARD:MIB
#   IMITATION_NAME="NVIDIA H100 80GB HBM3"
#   IMITATION_FAULT=1@500          from its 500th launch on, card 1 answers a process with an ECC
#                                  error, once on the machine; 1@500:illegal: an illegal address;
#                                  1@500:always: in every process
#   IMITATION_VALUES=0             kernels compute nothing; else the CPU computes their results
#   IMITATION_CHECK_PRODUCTS=1     compares cuBLASLt's descriptors with the operator that calls
#   IMITATION_EAGER=1              streams run at once, not as late as they may
#   IMITATION_LOG=FILE             counts and complaints, to FILE.PID; report.py reads them
#   IMITATION_TRACE=FILE           everything in order, to FILE.PID
#   IMITATION_TIMES=1              host time between launches, in the log
#   IMITATION_PLACES=1             a backtrace with each complaint
#   IMITATION_SUMS=1               prints the sum of each operator's result
#   IMITATION_SHARED=FOLDER        where processes of one machine meet
#   IMITATION_BUILD=FOLDER         what build.py has built
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=${IMITATION_BUILD:-$here/../../target/imitation/current}
[[ -e $build/preload ]] || { echo "with_card.sh: run tests/imitation/build.py first" >&2; exit 2; }
LD_PRELOAD=$(<"$build/preload")${LD_PRELOAD:+:$LD_PRELOAD}
export LD_PRELOAD
export IMITATION_VALUES_LIBRARY=$build/libimitation_values.so
export IMITATION_SHARED=${IMITATION_SHARED:-/dev/shm/imitation-$UID}
export IMITATION_FAULT_ID=${IMITATION_FAULT_ID:-$$-$EPOCHREALTIME}
exec "$@"
