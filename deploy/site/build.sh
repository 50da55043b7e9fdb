#!/usr/bin/env bash
# Builds the site of docs/ into target/site: `make docs`. A broken link or anchor fails. The
# generator is installed once, into target/site-venv; where it cannot be, this says so and succeeds.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=target/site-venv
wanted=deploy/site/requirements.txt

install() {
    rm -rf "$venv"
    mkdir -p target
    python3 -m venv "$venv" &&
        "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
            --only-binary :all: --no-deps -r "$wanted" &&
        cp "$wanted" "$venv/installed.txt"
}

if ! cmp -s "$wanted" "$venv/installed.txt" && ! install; then
    echo 'docs: not built, MkDocs cannot be installed here' >&2
    exit 0
fi
# The variable silences an advertisement of the theme's authors. `--quiet` would let warnings pass.
if ! told=$(NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" build --strict -f deploy/site/mkdocs.yml 2>&1); then
    grep -v '^INFO' <<<"$told" >&2
    exit 1
fi
echo 'docs: target/site/index.html'
