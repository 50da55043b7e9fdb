"""Compares static and dynamic assignment on a jobs file with one job ten times as long as the
others, and measures the cost of a lease.
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

import programs
import store
from launch import ROOT

RRUN = ROOT / "target/release/rrun"
ROUNDS = 3
SHORT, LONG = 6, 60
RULES = {
    "modulo": [],
    "modulo, by episodes": ["--shard", "episodes"],
    "dynamic": ["--assign", "dynamic"],
}
RANKS = [1, 4, 16]
LEASES = 4000
PAUSES = {"one after the other": 0, "every 20 ms": 20}


def jobs() -> dict:
    """Returns one long job and five short ones; by index, rank 0 gets the long one and two others.
    """
    entry = {"arena_env_args": {"environment": "push"}, "policy_type": "random_action", "seed": 1}
    lengths = [LONG, *[SHORT] * 5]
    return {"jobs": [{"name": f"job{i}", **entry, "num_episodes": length} for i, length in enumerate(lengths)]}


def evaluate(ranks: int, words: list[str]) -> dict[str, float]:
    """Returns the seconds that ranks spent in jobs: the maximum, and the sum over all ranks."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder, "jobs.json"), pathlib.Path(folder, "out")
        file.write_text(json.dumps(jobs()))
        command = [str(RRUN), f"--nproc-per-node={ranks}", "eval", "--jobs", str(file), "--output", str(out)]
        command += ["--no-video", "--export-mode=none", *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        report = json.loads((out / "report.json").read_text())
    assert not report["missing"] and not report["duplicates"], words
    busy = [rank["busy_s"] for rank in report["per_rank"]]
    return {"longest": max(busy), "all": sum(busy)}


def rules() -> None:
    print(f"### assign: a job of {LONG} episodes and five of {SHORT}, 2 ranks; seconds until the last rank is done, medians\n")
    print("| rule | last rank | share of the time in which ranks worked | modulo / this |")
    print("|---|---|---|---|")
    rounds = {rule: [] for rule in RULES}
    for _ in range(ROUNDS):
        for rule, words in RULES.items():
            rounds[rule].append(evaluate(2, words))
    median = lambda rule, of: statistics.median(of(found) for found in rounds[rule])
    modulo = median("modulo", lambda found: found["longest"])
    for rule in RULES:
        longest = median(rule, lambda found: found["longest"])
        busy = median(rule, lambda found: found["all"] / (2 * found["longest"]))
        print(f"| {rule} | {longest:.1f} s | {busy:.0%} | {modulo / longest:.2f} |", flush=True)
    print()


def leases() -> None:
    program, server = programs.program("measure"), programs.program("store")
    print("A lease: microseconds until a rank has it (two requests), and until an episode may be written (one); medians of rounds:\n")
    print("| store | ranks | a rank asks | claim: p50 | p99 | mark: p50 | p99 |")
    print("|---|---|---|---|---|---|---|")
    commands = {"rrun": [server, "serve"], "torch": [sys.executable, "-c", store.TORCH]}
    with contextlib.ExitStack() as ends:
        for name, words in commands.items():
            port, _ = ends.enter_context(store.serving(words))
            for pace, pause in PAUSES.items():
                for ranks in RANKS:
                    count = LEASES if pause == 0 else 100 * ranks
                    words = [program, "assign", str(port), str(ranks), str(count), str(pause)]
                    run = lambda: json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
                    rounds = [run() for _ in range(ROUNDS)]
                    columns = [f"{statistics.median(found[key] for found in rounds):.0f} µs" for key in rounds[0]]
                    print(f"| {name} | {ranks} | {pace} | {' | '.join(columns)} |", flush=True)
    print()


def main() -> None:
    rules()
    leases()
