#!/usr/bin/env bash
# Installs what building and running needs, except what is already installed:
#   setup.sh run    libtorch and MuJoCo from their wheels, and the necessary Debian packages
#   setup.sh test   also the full Python torch, numpy, h5py and pytest, which the tests need
# RRUN_TORCH=2.12.1 selects another torch than 2.11.0; the shims support 2.11 and 2.12.
# Everything except the Debian packages is installed into .venv and .deps beside this file.
set -euo pipefail
cd "$(dirname "$0")"

want=${1:-run}
case $want in run | test) ;; *) echo "setup.sh: \`$want\` is not a set-up: expected run or test" >&2; exit 2 ;; esac

say() { echo "setup: $*" >&2; }
die() { say "$*"; exit 1; }

# --- Rust and Python, which must be installed already ---------------------------------------------
command -v cargo >/dev/null || die "cargo is missing: install Rust 1.95 or newer from https://rustup.rs"
python=${PYTHON:-python3}
command -v "$python" >/dev/null || die "python3 is missing: apt install python3 python3-venv"

# --- Debian packages without a wheel --------------------------------------------------------------
# a C++ compiler (shims, HDF5), nasm (fast H.264), pkg-config, and Mesa's EGL
# (rendering without a display)
packages=(g++ pkg-config nasm libegl1 libegl-mesa0 libgl1-mesa-dri)
"$python" -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
if [[ $want == test ]]; then packages+=(xvfb); fi # a display for simulators
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
    sudo=
    if ((EUID)); then
        command -v sudo >/dev/null || die "ask an administrator for: apt install ${missing[*]}"
        sudo=sudo
    fi
    say "installing Debian packages: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $sudo apt-get update -qq
    $sudo apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
fi

# --- pinned wheels in a venv of this project ------------------------------------------------------
# libtorch comes with torch's own wheel. Without an NVIDIA driver, its CUDA libraries (3.5 GB) are
# left out unless RRUN_CUDA=1 is set, for example to build an image on a machine without a driver.
torch=${RRUN_TORCH:-2.11.0}
case $torch in
2.11.* | 2.12.*) ;;
*) die "RRUN_TORCH is \`$torch\`, expected a 2.11 or a 2.12" ;;
esac
minimal=("torch==$torch" nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 nvidia-cuda-crt==13.0.88
    nvidia-cuda-cccl==13.0.85 mujoco==3.17.0 cmake==4.4.4)
full=("torch==$torch" nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 numpy==2.4.6 cmake==4.4.4)
tests=(h5py==3.16.0 pytest==9.2.0 gymnasium==1.4.0 pyzmq==27.3.0 msgpack==1.2.4 websockets==17.4 anyio==4.16.0 pillow==13.0.0
    kubernetes-validate==1.37.0 kubeflow-trainer-api==2.3.0) # the last two bring the schemas of deploy/k8s
# openpi's client requires an older numpy, but the parts that are used here work with this one. Of
# vla-eval, connection, runners and model servers are used, which need none of its other packages.
alone=(openpi-client==0.1.2 vla-eval==0.8.0)

kind=minimal
if [[ -e /proc/driver/nvidia/version || -e /dev/nvidiactl || ${RRUN_CUDA:-0} == 1 ]]; then kind=full; fi
if [[ $want == test ]]; then kind=test; fi
stamp=.venv/rrun-wheels
have=$(cat "$stamp" 2>/dev/null || true)

install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }
wheels() {
    [[ -x .venv/bin/python ]] || "$python" -m venv .venv
    say "installing $kind wheels into .venv: $1"
    case $kind in
    minimal) install --no-deps "${minimal[@]}" ;;
    full) install "${full[@]}" && install --no-deps mujoco==3.17.0 ;;
    test) install "${full[@]}" "${tests[@]}" && install --no-deps mujoco==3.17.0 "${alone[@]}" ;;
    esac
    wanted >"$stamp"
}
wanted() { echo "$kind ${minimal[*]} ${full[*]} ${tests[*]} ${alone[*]}"; }
case "$have" in
"$(wanted)") ;;
"test ${minimal[*]} ${full[*]} ${tests[*]} ${alone[*]}") ;; # contains everything that the others have
*) wheels "0.6 GB to fetch, 3 GB more with CUDA or for the tests" ;;
esac

# --- links for .cargo/config.toml, so that the build does not run Python --------------------------
site=$(echo "$PWD"/.venv/lib/python3.*/site-packages)
mkdir -p .deps/mujoco
link() { [[ $(readlink "$2" || true) == "$1" ]] || ln -sfn "$1" "$2"; }
link "$site/torch" .deps/libtorch
for name in libmujoco.so libmujoco.so.3.17.0; do link "$site/mujoco/libmujoco.so.3.17.0" ".deps/mujoco/$name"; done
[[ -e .deps/libtorch/lib/libtorch_cpu.so ]] || die ".venv has no libtorch: remove .venv and run this again"
link "$site/cmake/data/bin/cmake" .deps/cmake
[[ -e .deps/mujoco/libmujoco.so ]] || die ".venv has no libmujoco: remove .venv and run this again"
