#!/usr/bin/env python3
"""`make gpu-imitation`: the tests of the GPU path, tests/gpu, on imitated cards.

Each module of the test program runs by itself, with several cards where it is about ranks. Prints a
table, and fails with any failed test and any complaint that no test provokes. What is counted is
what libtorch asks of a card; no time here is one of a GPU.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.append(str(ROOT / "benches"))
import programs

# Modules that are about several ranks.
CARDS = {"gather": 4, "nccl": 4}
# Launches of the largest graph that a module may capture: the demo's policy, as benches/README.md
# has it. Fewer are progress, and belong here.
MOST_LAUNCHES = {"evaluation": 290}
# Complaints that a test provokes: it captures what cannot be captured.
PROVOKED = {"graphs": {"cudaStreamSynchronize of a stream that is capturing"}}
# Seconds for one module, which takes 20 where the machine has nothing else to do.
LIMIT_S = 180


def test_program() -> pathlib.Path:
    """The test program `torch` that cargo has built, or builds now."""
    return programs.build("test", "--test", "torch", "--no-run")["torch"]


def modules(program: pathlib.Path) -> list[str]:
    """Those of tests/gpu, which are only a part of the program."""
    out = subprocess.run([program, "--list", "--format", "terse", "gpu::"], check=True, text=True,
                         stdout=subprocess.PIPE).stdout
    return sorted(set(re.findall(r"^gpu::(\w+)::.*: test$", out, re.MULTILINE)))


class Ran:
    """A module's run: what its program printed and what its processes did."""

    def __init__(self, module: str, folder: pathlib.Path, done: subprocess.CompletedProcess,
                 seconds: float):
        self.module, self.done, self.output = module, done, done.stdout
        self.seconds = seconds
        self.log = report.read(folder / f"{module}.log")
        found = re.findall(r"^test result: .*? (\d+) passed; (\d+) failed; (\d+) ignored",
                           self.output, re.MULTILINE)
        # Ranks that a test starts are test programs, too; the last result is the module's own.
        self.passed, self.failed = map(int, found[-1][:2]) if found else (0, 0)
        provoked = PROVOKED.get(module, set())
        self.complaints = {it: n for it, n in self.log.complaints.items() if it not in provoked}
        most = MOST_LAUNCHES.get(module)
        if most is not None and (not self.graph_sizes or max(self.graph_sizes) > most):
            found = max(self.graph_sizes, default=0)
            self.complaints[f"the largest graph has {found} launches, 1 to {most} are expected"] = 1

    @property
    def is_fine(self) -> bool:
        return self.done.returncode == 0 and not self.complaints

    def row(self) -> list:
        launches, copies = self.log.total("launch"), self.log.total("copy")
        return [self.module, f"{self.passed}/{self.passed + self.failed}",
                launches.enqueued + launches.replayed, copies.enqueued + copies.replayed,
                self.log.total("sync").enqueued, sum(self.complaints.values())]

    def results(self) -> list[dict]:
        """As `make test` counts it: the module, and what it could not test."""
        complaints = [f"complaint, {n} times: {it}" for it, n in self.complaints.items()]
        text = "\n".join([self.output, *complaints])
        found = [{"name": f"gpu::{self.module}", "outcome": "passed" if self.is_fine else "failed",
                  "seconds": self.seconds, "text": "" if self.is_fine else text}]
        return found + [{"name": f"gpu::{self.module}", "outcome": "skipped", "text": it}
                        for it in re.findall(r"^skipped: (.*)", self.output, re.MULTILINE)]

    @property
    def graph_sizes(self) -> list[int]:
        return [int(name.split()[0]) for kind, name in self.log.counts if kind == "graph"]

    def graphs(self) -> str:
        """How large the graphs are that were captured: a figure to watch."""
        sizes = self.graph_sizes
        number = self.log.total("graph").enqueued
        return f"{number} graphs of {min(sizes)} to {max(sizes)} launches" if sizes else ""


def run(module: str, program: pathlib.Path, folder: pathlib.Path) -> Ran:
    variables = {
        "RRUN_DEVICE": "cuda", "RRUN_ROOT": ".", "RRUN_BIN": "target/release",
        "IMITATION_SHARED": folder / module, "IMITATION_LOG": folder / f"{module}.log",
        "IMITATION_CARDS": CARDS.get(module, 1), "IMITATION_CHECK_PRODUCTS": 1,
    }
    env = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    words = [HERE / "with_card.sh", program, "--test-threads", "1", "--nocapture",
             "--include-ignored", f"gpu::{module}::"]
    begun = time.monotonic()
    try:
        done = subprocess.run(words, cwd=ROOT, env=env, text=True, timeout=LIMIT_S,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode() + f"\nnot done within {LIMIT_S} s\n"
        done = subprocess.CompletedProcess(words, 124, said)
    return Ran(module, folder, done, time.monotonic() - begun)


def print_table(rows: list[list]):
    head = ["module", "passed", "launches", "copies", "synchronisations", "complaints"]
    widths = [max(len(str(row[i])) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        first, *numbers = zip(row, widths)
        print(f"{first[0]:{first[1]}}", *(f"{str(it):>{width}}" for it, width in numbers), sep="  ")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*", help="of tests/gpu; all of them by default")
    parser.add_argument("--program", type=pathlib.Path, help="the test program, else cargo's")
    parser.add_argument("--results", type=pathlib.Path, help="a file for a line of JSON per module")
    parser.add_argument("--logs", type=pathlib.Path, help="where the logs are kept")
    asked = parser.parse_args()
    program = (asked.program or test_program()).resolve()
    begun, ran = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="imitation-") as folder:
        folder = asked.logs or pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for module in asked.modules or modules(program):
            ran.append(run(module, program, folder.resolve()))
            if not ran[-1].is_fine:
                print(f"--- {module}\n{ran[-1].output}", file=sys.stderr)
    if asked.results:
        lines = [json.dumps(line) + "\n" for it in ran for line in it.results()]
        asked.results.write_text("".join(lines))
    print_table([it.row() for it in ran])
    for it in ran:
        if it.graphs():
            print(f"{it.module}: {it.graphs()}")
        for complaint, times in it.complaints.items():
            print(f"{it.module}: complaint, {times} times: {complaint}")
    failed = [it.module for it in ran if not it.is_fine]
    print(f"{len(ran)} modules in {time.monotonic() - begun:.0f} s on imitated cards, "
          f"{len(failed)} failed{': ' if failed else ''}{', '.join(failed)}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
