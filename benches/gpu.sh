#!/usr/bin/env bash
# Runs tests and benches on a GPU in under 8 minutes, and prints one table at the end:
#   benches/gpu.sh                         on the machine's first GPU
#   RRUN_DEVICE=cpu benches/gpu.sh         tests this script; its figures mean nothing
# The programs are taken from target/gpu or target/gpu.tar.xz (`make gpu` makes both, on a machine
# with cargo), or else built by cargo. libtorch is that of `python3`, whatever torch was used for
# the build. RRUN_PYTHON selects another interpreter, RRUN_SITE other site-packages, RRUN_OUT the
# folder for logs and results, RRUN_SCRATCH a folder with 7 GB of space for a checkpoint.
set -uo pipefail
cd "$(dirname "$0")/.."
root=$PWD
device=${RRUN_DEVICE:-cuda}
out=${RRUN_OUT:-target/gpu-results}
total=${RRUN_SECONDS:-460}
mkdir -p "$out"
out=$(cd "$out" && pwd)
rm -f "$out"/*.jsonl "$out"/*.log

die() { echo "gpu.sh: $*" >&2; exit 2; }
say() { printf 'gpu.sh: %4d s: %s\n' "$SECONDS" "$*" >&2; }
left() { local rest=$((total - SECONDS)); echo $((rest > ${1:-1} ? rest : ${1:-1})); }
failed=()

case $device in
cpu) size=tiny batches=1,2 seconds=0.1 room=64000000 backend=eager ;;
cuda | cuda:*) size=full batches=1,8,32 seconds=2 room=7000000000 backend=inductor ;;
*) die "RRUN_DEVICE is \`$device\`, expected cpu, cuda or cuda:N" ;;
esac

# --- Python's torch -------------------------------------------------------------------------------
python=${RRUN_PYTHON:-}
if [[ -z $python ]]; then if [[ -x .venv/bin/python ]]; then python=.venv/bin/python; else python=python3; fi; fi
site=${RRUN_SITE:-$("$python" -c '
import importlib.util, pathlib
torch = importlib.util.find_spec("torch")
print(pathlib.Path(torch.origin).resolve().parent.parent if torch else "")')}
[[ -e $site/torch/lib/libtorch_cpu.so ]] || die "$python has no torch (looked in \`$site\`)"
libs=$site/torch/lib
for folder in "$site"/nvidia/*/lib; do if [[ -d $folder ]]; then libs+=:$folder; fi; done

# --- programs -------------------------------------------------------------------------------------
if [[ ! -x target/gpu/bin/rrun && -e target/gpu.tar.xz ]]; then
    "$python" -c 'import tarfile; tarfile.open("target/gpu.tar.xz").extractall("target", filter="data")' || die "target/gpu.tar.xz cannot be unpacked"
fi
if [[ ! -x target/gpu/bin/rrun ]]; then
    command -v cargo >/dev/null || die "there is neither target/gpu, nor target/gpu.tar.xz, nor cargo: run \`make gpu\` where cargo is"
    "$python" benches/gpu_bundle.py >&2 || die "the programs cannot be built"
fi
bin=$root/target/gpu/bin
# Only our programs use the bundled libraries, because Python's modules have their own.
ours=$libs:$root/target/gpu/lib
if ! ldconfig -p 2>/dev/null | grep -q 'libEGL\.so\.1'; then ours+=:$root/target/gpu/extra; fi
if ! compgen -G '/usr/share/glvnd/egl_vendor.d/*.json' >/dev/null && ! compgen -G '/etc/glvnd/egl_vendor.d/*.json' >/dev/null; then
    vendors=$(compgen -G '/usr/local/*/share/glvnd/egl_vendor.d/*.json' | paste -sd:)
    if [[ -n $vendors ]]; then export __EGL_VENDOR_LIBRARY_FILENAMES=$vendors; fi
fi
# TMPDIR: tests write large files. Python keeps its own TMPDIR, where the programs that
# torch.compile builds may be executed.
run() { env TMPDIR="$scratch" LD_LIBRARY_PATH="$ours${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" LP_NUM_THREADS=0 "$@"; }
# step NAME SECONDS COMMAND…: writes the output to a log, and lines of JSON also to results.jsonl.
step() {
    local name=$1 limit=$2; shift 2
    say "$name, at most $limit s"
    "$@" >"$out/$name.log" 2>&1
    local code=$?
    grep -a '^{' "$out/$name.log" >>"$out/results.jsonl"
    if ((code)); then
        failed+=("$name"); say "$name failed with code $code:"; tail -n 15 "$out/$name.log" >&2
    fi
    return $code
}
limited() { local limit=$1; shift; run timeout --kill-after=10 "$limit" "$@"; }
limited_python() { local limit=$1; shift; PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1 timeout --kill-after=10 "$limit" "$python" "$@"; }

# --- space for a checkpoint -----------------------------------------------------------------------
free() { df --output=avail -B1 "$1" 2>/dev/null | tail -n 1 | tr -d ' '; }
scratch=${RRUN_SCRATCH:-}
for folder in ${scratch:+"$scratch"} /dev/shm "${TMPDIR:-/tmp}"; do
    if [[ -w $folder && $(free "$folder") -gt $room ]]; then scratch=$(mktemp -d "$folder/rrun-gpu-XXXXXX"); break; fi
done
[[ -d $scratch ]] || die "no folder has $room bytes of room; RRUN_SCRATCH names one"
trap 'rm -rf "$scratch"' EXIT
checkpoint=$scratch/checkpoint inputs=$scratch/inputs
mkdir -p "$inputs"

# --- tests ----------------------------------------------------------------------------------------
export RRUN_ROOT=$root RRUN_GOLDENS=$root/tests/fixtures/gr00t RRUN_BIN=$bin RRUN_DEVICE=$device
step tests 170 limited 170 "$bin/torch_tests" gpu:: --include-ignored --test-threads 1 --nocapture
grep -ao 'skipped: .*' "$out/tests.log" | sort | uniq -c >&2

# --- benches --------------------------------------------------------------------------------------
step rates 60 limited_python 60 benches/policy_gpu.py rates --device "$device"
if step checkpoint 90 limited 90 "$bin/random_checkpoint" --size "$size" --out "$checkpoint" &&
    step ours "$(left 60)" limited "$(left 60)" "$bin/measure" gpu "$checkpoint" --device "$device" --batches "$batches" --seconds "$seconds" --inputs "$inputs"; then
    step eager "$(left 30)" limited_python "$(left 30)" benches/policy_gpu.py eager "$checkpoint" "$inputs" --device "$device" --batches "$batches"
    if (($(left 1) >= ${RRUN_COMPILE_SECONDS:-60})); then
        step compile "$(left 30)" limited_python "$(left 30)" benches/policy_gpu.py compile "$checkpoint" "$inputs" --device "$device" --backend "$backend"
    else
        echo "{\"what\": \"skipped\", \"of\": \"compile\", \"reason\": \"only $(left 1) of $total s were left\"}" >>"$out/results.jsonl"
    fi
fi
"$python" benches/gpu_table.py "$out" "$checkpoint" "$(cat target/gpu/COMMIT)" | tee "$out/table.md"
say "logs and results are in $out"
if ((${#failed[@]})); then say "failed: ${failed[*]}"; exit 1; fi
