"""Compares one inference of a compiled package (`policy_type: exported`) with the same network as a
TorchScript module, in eager PyTorch, and in Rust.

All read the same weights and inputs in float32, and must compute the same actions. They run in
separate processes that alternate after each inference, so that all see the same load of the
machine. Each has one thread: with more, the waiting threads of one side take the time of another.
"""

import contextlib
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from exported_models import PATCHES
from launch import ROOT
from policy import running, write_checkpoint
from programs import program

MODELS = pathlib.Path(__file__).with_name("exported_models.py")
WARM, ROUNDS = 3, 15


def folders(rust: str, parent: str):
    """Writes the networks and inputs; returns names and folders."""
    demo = pathlib.Path(parent, "demo")
    shutil.copytree(ROOT / "jobs/suites/demo_policy", demo)
    subprocess.run([rust, "policy", "inputs", str(demo)], check=True)
    large = pathlib.Path(parent, "160m")
    write_checkpoint("160m", str(large))
    return {"the demo's policy (1.8 M parameters)": demo, "160m (160 M parameters)": large}


def row(name: str, infer: dict) -> str:
    rounds = {side: [] for side in infer}
    for number in range(WARM + ROUNDS):
        for side, ask in infer.items():
            seconds = sum(ask(PATCHES))
            if number >= WARM:
                rounds[side].append(seconds * 1e3)
    package, script, eager, native = (statistics.median(rounds[side]) for side in ("pt2", "pt", "eager", "rust"))
    times = " | ".join(f"{ms:.1f} ms" for ms in (package, script, eager, native))
    ratios = " | ".join(f"{package / other:.2f}" for other in (script, eager, native))
    return f"| {name} | {times} | {ratios} |"


def main() -> None:
    rust = program("measure")
    print(f"### exported: one inference of a compiled package, {PATCHES} patches, float32, 4 steps, one thread; medians\n")
    print("| network | `.pt2` | TorchScript | eager PyTorch | native (Rust) | / TorchScript | / eager | / native |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="rrun-bench-") as parent:
        for name, folder in folders(rust, parent).items():
            subprocess.run([sys.executable, str(MODELS), "make", str(folder)], check=True, stdout=sys.stderr)
            commands = {
                "pt2": [rust, "exported", str(folder / "policy.pt2"), str(folder)],
                "pt": [rust, "exported", str(folder / "policy.pt"), str(folder)],
                "eager": [sys.executable, str(MODELS), "run", str(folder)],
                "rust": [rust, "policy", "run", str(folder)],
            }
            with contextlib.ExitStack() as stack:
                infer = {side: stack.enter_context(running(words, threads=1)) for side, words in commands.items()}
                print(row(name, infer), flush=True)
    print()
