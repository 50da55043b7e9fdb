#!/usr/bin/env bash
# Installs LeRobot at the versions that lerobot.txt beside this file pins, and makes small
# checkpoints with random weights for its tests and examples, offline:
#   install.sh            installs and makes what is missing
#   install.sh --list     lists what there is, and what it costs
# The venv is .policies/lerobot at the root of the checkout, the checkpoints are
# .policies/checkpoints, or both in $RRUN_POLICIES. Nothing else is written.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${RRUN_POLICIES:-$(cd "$here/../../.." && pwd)/.policies}
venv=$root/lerobot
checkpoints=$root/checkpoints
made=(act diffusion smolvla pi05 act_table_top)

say() { echo "policies: $*" >&2; }
die() { say "$*"; exit 1; }

pins() { grep -v '^#' "$here/lerobot.txt"; }
# What the venv and the checkpoints are made from.
sources() { pins; cat "$here/make.py" "$here"/small/pyproject.toml "$here"/small/src/*/*.py | cksum; }
is_installed() { cmp --silent <(pins) "$venv/rrun-pins.txt"; }
is_made() { cmp --silent <(sources) "$checkpoints/rrun-sources.txt"; }

list() {
    local state="not installed"
    is_installed && state="installed: $venv"
    printf '%-14s %s\n%-14s %s; %s\n' lerobot "$(sed -n '1s/^# //p' "$here/lerobot.txt")" "" \
        "$(sed -n 's/^# cost: //p' "$here/lerobot.txt")" "$state"
    state="not made"
    is_made && state="made: $checkpoints"
    printf '%-14s %s; %s\n' checkpoints "${made[*]}, 170 MB" "$state"
}

# LeRobot 0.6 requires Python 3.12 or newer; its pins have wheels for 3.12 and 3.13. A name in PATH
# may be a shim of pyenv that runs nothing, so each is tried.
find_python() {
    local python pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
    for python in ${PYTHON:-} python3.12 python3.13 python3 "$pyenv"/3.12*/bin/python3 "$pyenv"/3.13*/bin/python3; do
        "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 12) <= sys.version_info < (3, 14))' 2>/dev/null \
            && { echo "$python"; return; }
    done
    die "LeRobot 0.6 requires Python 3.12 or 3.13 with venv, and none is in PATH or in $pyenv: apt install python3.12-venv, \
pyenv install 3.12, or name one with PYTHON="
}

install() {
    local python
    python=$(find_python)
    say "installing LeRobot into $venv with $("$python" --version) ($(sed -n 's/^# cost: //p' "$here/lerobot.txt"))"
    rm -rf "${venv:?}"
    mkdir -p "$root"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/lerobot.txt"
    "$venv/bin/python" -c 'import lerobot, torch, gym_pusht' || die "LeRobot was installed and cannot be imported"
    pins >"$venv/rrun-pins.txt"
}

# The plugin is built in a copy, because setuptools writes beside its sources.
make_checkpoints() {
    local copy
    say "making checkpoints in $checkpoints"
    rm -rf "${checkpoints:?}"
    copy=$(mktemp -d)
    cp -r "$here/small" "$copy"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --force-reinstall \
        "$copy/small" && rm -rf "$copy"
    "$venv/bin/python" "$here/make.py" "$checkpoints" >&2
    sources >"$checkpoints/rrun-sources.txt"
}

case ${1:-} in
"") ;;
--list) list; exit ;;
*) die "\`$1\` is not an option: expected --list or nothing" ;;
esac
is_installed || install
is_made || make_checkpoints
say "LeRobot is in $venv, the checkpoints are in $checkpoints"
