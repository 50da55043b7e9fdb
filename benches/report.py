"""Measures reports: merges all journals of a run, compared with a Python script that merges the
same files with `json`.
"""

import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

import programs
from launch import FOLDER

# Number of jobs, of episodes per job, and of ranks.
SIZES = [(1000, 100, 4), (10_000, 100, 4)]
ROUNDS = 3


def measured(command: list[str]) -> dict[str, float]:
    """Returns the timings that the program prints, with its CPU seconds and its peak memory in MiB.
    """
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{command[0]} failed")
    seconds = json.loads(output)
    all_s = seconds["read_s"] + seconds["report_s"] + seconds["write_s"]
    return {**seconds, "all_s": all_s, "cpu_s": usage.ru_utime + usage.ru_stime, "mib": usage.ru_maxrss / 1024}


def main() -> None:
    print(f"### report: the journals of {SIZES[0][2]} ranks merged into a report, each episode also a line; medians of {ROUNDS}\n")
    print("| episodes | journals | rrun: merged | files written | all | CPU | memory | Python: all | CPU | memory | time: Python / rrun | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    program, script = programs.program("report"), str(pathlib.Path(__file__).with_name("report_merge.py"))
    for jobs, episodes, ranks in SIZES:
        folder = pathlib.Path(FOLDER.name, "report")
        subprocess.run([program, "make", str(folder), str(jobs), str(episodes), str(ranks)], check=True)
        size = sum(path.stat().st_size for path in (folder / "journal").iterdir()) / 1e6
        sides = {"rrun": [program, "merge", str(folder)], "python": [sys.executable, script, str(folder)]}
        runs = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, command in sides.items():
                runs[name].append(measured(command))
        of = lambda side, part: statistics.median(run[part] for run in runs[side])
        merged = statistics.median(run["read_s"] + run["report_s"] for run in runs["rrun"])
        cells = [
            f"{jobs} jobs x {episodes}",
            f"{size:.0f} MB",
            f"{merged:.2f} s",
            f"{of('rrun', 'write_s'):.2f} s",
            *(f"{of(side, part):.{digits}f} {unit}" for side in sides for part, digits, unit in
              [("all_s", 2, "s"), ("cpu_s", 2, "s"), ("mib", 0, "MiB")]),
            f"{of('python', 'all_s') / of('rrun', 'all_s'):.1f}",
            f"{of('python', 'mib') / of('rrun', 'mib'):.1f}",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
        shutil.rmtree(folder)
    print()
