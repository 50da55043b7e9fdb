"""Compares GR00T N1.7 in Rust (its fused form) with the same network in eager PyTorch (see
policy_eager.py).

Both read the same random weights and inputs, in float32, and must compute the same actions. They
run in separate processes and alternate after each inference, so that both see the same load of the
machine.
"""

import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

from launch import FOLDER, ROOT
from programs import program

PARTS = ["vision", "language", "conditions", "sampler"]
SIZES = {"tiny": "1.5 M parameters", "160m": "160 M parameters"}
PATCHES = [64, 256]
THREADS = [1, 2]
WARM, ROUNDS = 2, 15


def sides(rust: str, folder: str) -> dict[str, list[str]]:
    eager = pathlib.Path(__file__).with_name("policy_eager.py")
    return {"rust": [rust, "policy", "run", folder], "python": [sys.executable, str(eager), folder]}


def write_checkpoint(size: str, folder: str) -> None:
    """Writes a model directory with random weights, inputs, and the actions that they lead to."""
    words = ["--size", size, "--dtype", "f32", "--out", folder]
    subprocess.run([program("random_checkpoint"), *words], check=True, stdout=sys.stderr)
    subprocess.run([program("measure"), "policy", "inputs", folder], check=True)


@contextlib.contextmanager
def running(command: list[str], threads: int):
    """Makes a program infer an image of `patches` patches; returns the seconds of its parts."""
    env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    child = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def infer(patches: int) -> list[float]:
        print(patches, file=child.stdin, flush=True)
        answer = child.stdout.readline()
        if not answer:
            sys.exit(f"{command[0]} ended with {child.wait()} instead of an answer")
        return json.loads(answer)

    try:
        yield infer
    finally:
        child.stdin.close()
        child.wait()


def medians(rounds: list[list[float]]) -> list[float]:
    """Returns the medians of every part, and of their sum, in milliseconds."""
    return [statistics.median(column) * 1e3 for column in zip(*([*round, sum(round)] for round in rounds))]


def row(size: str, patches: int, threads: int, infer: dict) -> str:
    rounds = {name: [] for name in infer}
    for number in range(WARM + ROUNDS):
        for name in infer:
            seconds = infer[name](patches)
            if number >= WARM:
                rounds[name].append(seconds)
    rust, python = medians(rounds["rust"]), medians(rounds["python"])
    parts = " | ".join(f"{ours:.1f} / {theirs:.1f}" for ours, theirs in zip(rust[:-1], python))
    return f"| {size} | {patches} | {threads} | {rust[-1]:.1f} ms | {python[-1]:.1f} ms | {rust[-1] / python[-1]:.2f} | {parts} |"


def counter() -> str:
    """Compiles operators.cc and returns the path of the library."""
    library, torch = pathlib.Path(FOLDER.name, "operators.so"), ROOT / ".deps/libtorch"
    words = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-o", str(library)]
    source = pathlib.Path(__file__).with_name("operators.cc")
    lib = (torch / "lib").resolve()
    links = [f"-I{torch / 'include'}", f"-L{lib}", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{lib}"]
    subprocess.run([*words, str(source), *links], check=True)
    return str(library)


def operators(command: list[str], library: str, patches: int) -> list[int]:
    """Returns the number of called and of nested operators in one inference: the difference that
    one more inference makes in the whole process."""
    counts = []
    for inferences in (WARM, WARM + 1):
        env = {**os.environ, "OMP_NUM_THREADS": "1", "LD_PRELOAD": library}
        lines = f"{patches}\n" * inferences
        done = subprocess.run(command, env=env, input=lines, check=True, capture_output=True, text=True)
        words = next(line for line in done.stderr.splitlines() if line.startswith("operators:")).split()
        counts.append([int(word) for word in words[1:]])
    return [after - before for before, after in zip(*counts)]


def main() -> None:
    rust = program("measure")
    print("### policy: one inference of GR00T N1.7, one picture, float32, 4 steps; medians; parts are Rust / Python in ms\n")
    print(f"| size | patches | threads | Rust | eager PyTorch | ratio | {' | '.join(PARTS)} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="rrun-bench-") as folder:
        for size, words in SIZES.items():
            write_checkpoint(size, f"{folder}/{size}")
            commands = sides(rust, f"{folder}/{size}")
            for threads in THREADS:
                with running(commands["rust"], threads) as ours, running(commands["python"], threads) as theirs:
                    for patches in PATCHES:
                        infer = {"rust": ours, "python": theirs}
                        print(row(f"{size} ({words})", patches, threads, infer), flush=True)
        print("\nOperators of one inference (with those that they call in turn):\n")
        print("| patches | Rust | eager PyTorch | ratio |")
        print("|---|---|---|---|")
        library, commands = counter(), sides(rust, f"{folder}/tiny")
        for patches in PATCHES:
            ours, theirs = (operators(command, library, patches) for command in commands.values())
            cell = lambda count: f"{count[0]} ({sum(count)})"
            print(f"| {patches} | {cell(ours)} | {cell(theirs)} | {ours[0] / theirs[0]:.2f} |", flush=True)
    print()
