#!/usr/bin/env bash
# Installs third-party simulators, each into its own venv, at the versions that NAME.txt beside this
# file pins:
#   install.sh NAME...    installs simulators, unless they are installed and work
#   install.sh --list     lists all simulators, their cost, and whether they are installed
# The venvs are .simulators/NAME at the root of the checkout, or $RRUN_SIMULATORS/NAME. Nothing
# else is written.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venvs=${RRUN_SIMULATORS:-$(cd "$here/../../.." && pwd)/.simulators}
names=(pusht pusher fetch metaworld aloha libero)

say() { echo "simulators: $*" >&2; }
die() { say "$*"; exit 1; }

# The first comment line of NAME.txt describes the simulator, the second one its cost.
about() { sed -n 's/^# //p' "$here/$1.txt" | sed -n 1p; }
cost() { sed -n 's/^# cost: //p' "$here/$1.txt"; }

# A simulator is installed if its venv was made with these pins, and it then made a step.
is_installed() { [[ -f $venvs/$1/rrun-pins.txt ]] && cmp --silent <(pins "$here/$1.txt") <(pins "$venvs/$1/rrun-pins.txt"); }
pins() { grep -v '^#' "$1"; }

list() {
    local name state
    for name in "${names[@]}"; do
        state="not installed"
        is_installed "$name" && state="installed: $venvs/$name"
        printf '%-10s %s\n%-10s %s; %s\n' "$name" "$(about "$name")" "" "$(cost "$name")" "$state"
    done
}

# Finds the first Python that the pins support; 3.11 is preferred, for LIBERO's MuJoCo 2.3.7.
find_python() {
    local python
    for python in ${PYTHON:-} python3.11 python3.12 python3.13 python3; do
        "$python" -c 'import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null \
            && { echo "$python"; return; }
    done
    die "Python 3.11 to 3.13 with venv is required: apt install python3 python3-venv, or name one with PYTHON="
}

# Makes one reset and one step, with an image. It cannot ask questions: standard input is closed.
try() {
    local egl=(MUJOCO_GL=egl PYOPENGL_PLATFORM=egl LP_NUM_THREADS=0)
    env "${egl[@]}" "$venvs/$1/bin/python" "$here/try.py" "$1" </dev/null >/dev/null
}

install() {
    local name=$1 python
    if is_installed "$name"; then
        say "$name is installed: $venvs/$name"
        return
    fi
    python=$(find_python)
    say "$name: $(about "$name")"
    say "$name: installing into $venvs/$name with $("$python" --version) ($(cost "$name"))"
    rm -rf "${venvs:?}/$name"
    mkdir -p "$venvs"
    "$python" -m venv "$venvs/$name"
    "$venvs/$name/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$here/$name.txt"
    try "$name" || die "$name was installed and does not run; MuJoCo's need EGL: apt install libegl1 libegl-mesa0 libgl1 libgl1-mesa-dri"
    cp "$here/$name.txt" "$venvs/$name/rrun-pins.txt"
    say "$name is ready: $venvs/$name/bin/python"
}

[[ $# -gt 0 ]] || die "expected simulators to install: ${names[*]}, or --list"
if [[ $1 == --list ]]; then list; exit; fi
for name in "$@"; do
    [[ " ${names[*]} " == *" $name "* ]] || die "\`$name\` is not a simulator: expected one of ${names[*]}"
done
for name in "$@"; do install "$name"; done
