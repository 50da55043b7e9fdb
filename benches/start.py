"""Launching: N ranks that end at once, by rrun, by torchrun, and by a bare fork and exec of the same ranks."""

import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).parent.parent
RRUN = ROOT / "target/release/rrun"
TORCHRUN = pathlib.Path(sys.executable).with_name("torchrun")
RANKS = [1, 4, 16, 64]
ROUNDS = {"rrun": 9, "torchrun": 5, "fork": 9}


def commands(ranks: int) -> dict[str, list[str]]:
    launch = ["--standalone", f"--nproc-per-node={ranks}", "--no-python", "/bin/true"]
    bare = f"i=0; while [ $i -lt {ranks} ]; do /bin/true & i=$((i+1)); done; wait"
    return {"rrun": [str(RRUN), *launch], "torchrun": [str(TORCHRUN), *launch], "fork": ["sh", "-c", bare]}


def seconds(command: list[str]) -> float:
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - begin


def main() -> None:
    print("### start: wall time of a launch whose ranks are `/bin/true`, median\n")
    print("| ranks | rrun | torchrun | bare fork+exec | torchrun / rrun | rrun / fork |")
    print("|---|---|---|---|---|---|")
    for ranks in RANKS:
        taken = {name: [] for name in ROUNDS}
        for turn in range(max(ROUNDS.values())):
            for name, command in commands(ranks).items():
                if turn < ROUNDS[name]:
                    taken[name].append(seconds(command))
        rrun, torchrun, fork = (statistics.median(taken[name]) for name in ("rrun", "torchrun", "fork"))
        print(
            f"| {ranks} | {rrun * 1e3:.1f} ms | {torchrun * 1e3:.0f} ms | {fork * 1e3:.1f} ms "
            f"| {torchrun / rrun:.0f} | {rrun / fork:.1f} |",
            flush=True,
        )
    print()
