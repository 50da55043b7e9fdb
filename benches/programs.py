"""Programs that cargo builds for the benches: `programs.py NAME` builds one and prints its path."""

import functools
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def build(command: str, *words: str) -> dict[str, pathlib.Path]:
    """Builds targets of the workspace with `cargo COMMAND`; returns the programs by the names of their targets."""
    words = [command, "--release", "--locked", "--workspace", *words, "--message-format=json-render-diagnostics"]
    built = subprocess.run(["cargo", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    return {m["target"]["name"]: pathlib.Path(m["executable"]) for m in messages if m.get("executable")}


@functools.cache
def program(name: str) -> str:
    """Builds a bench of Cargo.toml on top of what `cargo build --release` has compiled; returns its path."""
    return str(build("build", "--bench", name)[name])


if __name__ == "__main__":
    print(program(sys.argv[1]))
