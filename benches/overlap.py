"""Measures overlap: the demo's trained policy on one rank, with its environments in one group and
in two groups that alternate.

With one group, simulation and inference alternate, and their times add up to the wall time. With
two, the wall time should come close to the longer of the two times.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
RRUN = ROOT / "target/release/rrun"
ROUNDS = 3
MODES = {"datasets, videos": [], "datasets": ["--no-video"]}


def evaluate(jobs: list[dict], stages: int, words: list[str]) -> dict[str, dict]:
    """Returns the jobs of the report by name. The policy and the simulator get one thread each, so
    that each has its own core."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder, "jobs.json"), pathlib.Path(folder, "out")
        file.write_text(json.dumps({"jobs": jobs}))
        command = [str(RRUN), "--nproc-per-node=1", "eval", "--jobs", str(file), "--output", str(out)]
        command += ["--pipeline-stages", str(stages), *words]
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT, env=env)
        return {job["name"]: job for job in json.loads((out / "report.json").read_text())["per_job"]}


def main() -> None:
    print("### overlap: the trained policy of the demo, 4 environments, one group of them or two; seconds, medians\n")
    print("| recorded | job | one group: simulation | inference | wall | two groups: wall | over the longer | gain |")
    print("|---|---|---|---|---|---|---|---|")
    suite = json.loads((ROOT / "jobs/suites/demo.json").read_text())["jobs"]
    jobs = [job for job in suite if job["policy_type"] == "gr00t"]
    for mode, words in MODES.items():
        rounds = [(evaluate(jobs, 1, words), evaluate(jobs, 2, words)) for _ in range(ROUNDS)]
        for name in rounds[0][0]:
            median = lambda which, field: statistics.median(round[which][name][field] for round in rounds)
            simulation, inference = median(0, "sim_busy_s"), median(0, "infer_busy_s")
            alone, overlapped = median(0, "wall_s"), median(1, "wall_s")
            ratios = f"{overlapped / max(simulation, inference):.2f} | {alone / overlapped:.2f}"
            seconds = f"{simulation:.2f} | {inference:.2f} | {alone:.2f} | {overlapped:.2f}"
            print(f"| {mode} | {name} | {seconds} | {ratios} |", flush=True)
    print()
