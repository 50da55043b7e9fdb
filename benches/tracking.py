"""Measures what trackers cost rank 0: its CPU time with and without them, in turn, and the time at the end of a run.

The packages come from the venv of `tests/trackers/run.sh`, or that of $TRACKERS_VENV.
"""

import json
import os
import pathlib
import re
import statistics
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).parent.parent
RRUN = pathlib.Path(os.environ.get("RRUN_BIN", ROOT / "target/release")) / "rrun"
VENV = os.environ.get("TRACKERS_VENV", str(ROOT / "target/trackers-venv"))
ROUNDS = 5
EPISODES = 400
TRACKERS = ["none", "tensorboard", "wandb", "trackio", "mlflow"]


def evaluate(tracker: str) -> dict[str, float]:
    """Runs an evaluation; returns CPU seconds of rank 0, its children included, and seconds in all."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = pathlib.Path(folder, "jobs.json")
        entry = {"arena_env_args": {"environment": "push", "num_envs": 4}, "policy_type": "scripted"}
        entries = [{"name": f"push{task}", **entry, "num_episodes": EPISODES // 10} for task in range(10)]
        jobs.write_text(json.dumps({"jobs": entries}))
        command = [str(RRUN), "--standalone", "--nproc-per-node=2", "--rusage", "eval", "--jobs", str(jobs), "--output", f"{folder}/out"]
        command += ["--no-video", "--export-mode=none"]
        if tracker != "none":
            command += ["--track", tracker, "--track-python", VENV]
        env = {**os.environ, "WANDB_MODE": "offline", "TRACKIO_DIR": f"{folder}/trackio", "PYTHONWARNINGS": "ignore"}
        begun = time.monotonic()
        ended = subprocess.run(command, check=True, cwd=folder, capture_output=True, text=True, env=env)
        wall = time.monotonic() - begun
    user, system = re.search(r"rank 0\D.*?([\d.]+) s of CPU, ([\d.]+) s in the kernel", ended.stderr).groups()
    return {"cpu": float(user) + float(system), "wall": wall}


def main() -> None:
    rounds = {tracker: [] for tracker in TRACKERS}
    for _ in range(ROUNDS):
        for tracker in TRACKERS:
            rounds[tracker].append(evaluate(tracker))
    median = {tracker: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for tracker, runs in rounds.items()}
    print(f"### tracking: `push`, {EPISODES} episodes of 10 jobs on 2 ranks; medians\n")
    print("| tracker | CPU of rank 0 and its children | more than without | run in all |")
    print("|---|---|---|---|")
    for tracker, values in median.items():
        more = values["cpu"] - median["none"]["cpu"]
        print(f"| {tracker} | {values['cpu']:.2f} s | {more:+.2f} s | {values['wall']:.1f} s |")
    print()


if __name__ == "__main__":
    main()
