"""Shared code of the benches: the launchers' command lines, and small programs in C that must cost
next to nothing.
"""

import functools
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
RRUN = ROOT / "target/release/rrun"
TORCHRUN = pathlib.Path(sys.executable).with_name("torchrun")
FOLDER = tempfile.TemporaryDirectory(prefix="rrun-bench-")


@functools.cache
def compiled(name: str, *options: str) -> str:
    """Compiles the C program `name`.c beside this file, and returns its path."""
    program = pathlib.Path(FOLDER.name, name)
    subprocess.run(["cc", "-O2", *options, "-o", program, pathlib.Path(__file__).with_name(f"{name}.c")], check=True)
    return str(program)


def preloaded(name: str) -> str:
    """Compiles `name`.c for LD_PRELOAD, and returns its path."""
    return compiled(name, "-shared", "-fPIC")


def ranks() -> str:
    return compiled("ranks")


def command(launcher: pathlib.Path, nproc: int, *words: str) -> list[str]:
    return [str(launcher), "--standalone", f"--nproc-per-node={nproc}", "--no-python", *words]
