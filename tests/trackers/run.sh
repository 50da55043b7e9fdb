#!/usr/bin/env bash
# Logs an evaluation with the real packages of the trackers, offline, and reads it back with them:
# part of `make slow`. The packages are installed once, into target/trackers-venv; where they cannot
# be, this says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/trackers-venv
wanted=tests/trackers/requirements.txt

install() {
    rm -rf "$venv"
    mkdir -p target
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
            --only-binary :all: -r "$wanted" &&
        cp "$wanted" "$venv/installed.txt"
}

if ! cmp -s "$wanted" "$venv/installed.txt" && ! install; then
    echo 'trackers: not tested, their packages cannot be installed here' >&2
    exit 0
fi
exec "$venv/bin/python" -m pytest -q -rs tests/trackers "$@"
