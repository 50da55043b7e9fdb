#!/usr/bin/env python3
"""Reads logs of processes on imitated cards: `report.py LOG…`, each with all its `.PID` files.

Prints how often each class of work was given to a stream, captured into a graph, and replayed.
Counts are exact and the same in every run: a figure to watch. Nothing here is a time of a GPU.
"""

import collections
import pathlib
import re
import sys
from dataclasses import dataclass, field

# The first pattern that a name has; the rest are other kernels.
KERNELS = {
    "attention": r"fmha|flash|cudnnBackendExecute|efficient_attention",
    "products": r"cublas|gemm|gemv|cutlass",
    "collectives": r"^nccl",
    "norms": r"layer_norm|LayerNorm|rms_norm|group_norm|batch_norm|softmax",
    "reductions": r"reduce_kernel",
    "elementwise": r"elementwise",
    "gathers": r"index|gather|scatter|CatArray|roll|embedding",
}


@dataclass
class Count:
    enqueued: int = 0
    captured: int = 0
    replayed: int = 0

    def add(self, other: "Count"):
        self.enqueued += other.enqueued
        self.captured += other.captured
        self.replayed += other.replayed


@dataclass
class Log:
    """What all processes of a run did, by the kind of work and its name."""

    counts: dict[tuple[str, str], Count] = field(default_factory=dict)
    complaints: dict[str, int] = field(default_factory=dict)
    gaps: int = 0
    gap_ns: int = 0
    longest_gap_ns: int = 0

    def add(self, text: str):
        for line in text.splitlines():
            kind, rest = line.split(" ", 1)
            if kind == "complaint":
                times, what = rest.split(" ", 1)
                self.complaints[what] = self.complaints.get(what, 0) + int(times)
            elif kind == "gaps":
                number, _, total, _, longest = rest.split(" ")
                self.gaps += int(number)
                self.gap_ns += int(total)
                self.longest_gap_ns = max(self.longest_gap_ns, int(longest))
            else:
                *numbers, name = rest.split(" ", 3)
                key = self.counts.setdefault((kind, name), Count())
                key.add(Count(*map(int, numbers)))

    def total(self, kind: str) -> Count:
        out = Count()
        for (found, _), count in self.counts.items():
            if found == kind:
                out.add(count)
        return out

    def classes(self) -> dict[str, Count]:
        out: dict[str, Count] = collections.defaultdict(Count)
        for (kind, name), count in self.counts.items():
            out[class_of(kind, name)].add(count)
        return dict(sorted(out.items()))


def class_of(kind: str, name: str) -> str:
    if kind == "launch":
        found = (it for it, pattern in KERNELS.items() if re.search(pattern, name))
        return f"kernels: {next(found, 'other')}"
    if kind == "sync":
        return f"synchronisations: {name}"
    if kind == "graph":
        return f"graphs of {name}"
    if kind == "values":
        return "(results by the CPU)"
    return f"{'copies' if kind == 'copy' else 'other'}: {name.strip('[]')}"


def read(*prefixes: pathlib.Path) -> Log:
    log = Log()
    for prefix in prefixes:
        for path in sorted({prefix, *prefix.parent.glob(f"{prefix.name}.*")}):
            if not path.is_file():
                continue
            log.add(path.read_text(errors="replace"))
    return log


def main():
    log = read(*map(pathlib.Path, sys.argv[1:]))
    print(f"{'':50} {'enqueued':>9} {'captured':>9} {'replayed':>9}")
    for name, count in log.classes().items():
        print(f"{name[:50]:50} {count.enqueued:9} {count.captured:9} {count.replayed:9}")
    if log.gaps:
        mean = log.gap_ns / log.gaps / 1000
        print(f"host time between launches: {mean:.1f} us on average, "
              f"{log.longest_gap_ns / 1000:.0f} us at most, of {log.gaps}")
    for what, times in sorted(log.complaints.items()):
        print(f"complaint, {times} times: {what}")
    sys.exit(1 if log.complaints else 0)


if __name__ == "__main__":
    main()
