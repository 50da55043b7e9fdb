"""Measures launching N ranks that exit at once: with rrun, with torchrun, and with a bare loop of
fork and exec (in C, see ranks.c).
"""

import statistics
import subprocess
import time

from launch import RRUN, TORCHRUN, command, ranks

RANKS = [1, 4, 16, 64, 256, 1024]
ROUNDS = {"rrun": 21, "fork": 21, "torchrun": 5}
# Torchrun with more ranks takes long and shows nothing new.
MOST_OF_TORCHRUN = 64


def commands(count: int) -> dict[str, list[str]]:
    rank = [ranks(), "now"]
    all_three = {
        "rrun": command(RRUN, count, *rank),
        "fork": [ranks(), "fork", str(count), *rank],
        "torchrun": command(TORCHRUN, count, *rank),
    }
    return {name: words for name, words in all_three.items() if name != "torchrun" or count <= MOST_OF_TORCHRUN}


def once(words: list[str]) -> tuple[float, float]:
    """Returns the seconds until the launch is over, and until the first rank was in its `main`."""
    begin = time.monotonic_ns()
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    wall = time.monotonic_ns() - begin
    return wall / 1e9, (min(int(line) for line in done.stdout.split()) - begin) / 1e9


def row(count: int) -> list[str]:
    taken = {name: [] for name in commands(count)}
    for turn in range(max(ROUNDS.values())):
        for name, words in commands(count).items():
            if turn < ROUNDS[name]:
                taken[name].append(once(words))
    median = {name: [statistics.median(column) for column in zip(*rounds)] for name, rounds in taken.items()}
    (rrun, first), (fork, fork_first) = median["rrun"], median["fork"]
    torchrun, torchrun_first = median.get("torchrun", (None, None))
    ratio = lambda theirs, ours: f"{theirs / ours:.0f}" if theirs else "–"
    seconds = lambda it: f"{it * 1e3:.0f} ms" if it else "–"
    wall = [f"{rrun * 1e3:.1f} ms", f"{fork * 1e3:.1f} ms", seconds(torchrun), f"{rrun / fork:.2f}", ratio(torchrun, rrun)]
    main = [f"{first * 1e3:.1f} ms", f"{fork_first * 1e3:.1f} ms", seconds(torchrun_first), ratio(torchrun_first, first)]
    return [str(count), *wall, *main]


def main() -> None:
    print("### start: a launch of ranks that end at once; until it is over, and until the first rank is in its `main`; medians\n")
    print("| ranks | over: rrun | fork+exec | torchrun | rrun / fork | torchrun / rrun | first `main`: rrun | fork+exec | torchrun | torchrun / rrun |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count in RANKS:
        print(f"| {' | '.join(row(count))} |", flush=True)
    print()
