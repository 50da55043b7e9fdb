"""Measures rollouts: steps, frames and episodes per second of `rrun eval`, and of a Python loop
with the same physics and cameras.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
RRUN = ROOT / "target/release/rrun"
ROUNDS = 3
MODES = {
    "nothing": (["--no-video", "--export-mode=none"], 32),
    "datasets": (["--no-video"], 32),
    "datasets, videos": ([], 8),
}
EXPERT = {"datasets": 120, "datasets, videos": 24}


def evaluate(ranks: int, words: list[str], episodes: int, policy: str) -> dict[str, float]:
    """Runs one evaluation with one job per rank; returns rates over the seconds in which jobs ran.
    """
    with tempfile.TemporaryDirectory() as folder:
        jobs = pathlib.Path(folder, "jobs.json")
        entry = {"arena_env_args": {"environment": "push", "num_envs": 4}, "policy_type": policy}
        entries = [{"name": f"push{rank}", **entry, "num_episodes": episodes // ranks} for rank in range(ranks)]
        jobs.write_text(json.dumps({"jobs": entries}))
        out = pathlib.Path(folder, "out")
        command = [str(RRUN), "--standalone", f"--nproc-per-node={ranks}", "eval", "--jobs", str(jobs), "--output", str(out)]
        subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        report = json.loads((out / "report.json").read_text())
    wall = max(job["wall_s"] for job in report["per_job"])
    total = lambda field: sum(job[field] for job in report["per_job"])
    return {"steps": total("env_steps") / wall, "frames": total("frames") / wall, "episodes": total("episodes") / wall}


def python_loop(render: bool, steps: int) -> dict[str, float]:
    """Steps the same scene with MuJoCo's own Python bindings: one environment, like a gymnasium
    environment."""
    script = pathlib.Path(__file__).with_name("python_loop.py")
    command = [sys.executable, str(script), str(steps), "1" if render else "0"]
    env = {**os.environ, "MUJOCO_GL": "egl"}
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout)


def median(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(round[key] for round in rounds) for key in rounds[0]}


def main() -> None:
    print("### rollout: `push`, 4 environments a rank, cameras of 224x224; medians\n")
    print("Random actions, beside a Python loop on the same scene (which writes no dataset and no video):\n")
    print("| recorded | ranks | steps/s | frames/s | steps/s of Python | ratio |")
    print("|---|---|---|---|---|---|")
    for mode, (words, episodes) in MODES.items():
        rendered = "videos" in mode
        rounds = {1: [], 2: [], "python": []}
        for _ in range(ROUNDS):
            rounds[1].append(evaluate(1, words, episodes, "random_action"))
            rounds["python"].append(python_loop(rendered, 400 if rendered else 4000))
            rounds[2].append(evaluate(2, words, episodes, "random_action"))
        python = median(rounds["python"])["steps"]
        for ranks in (1, 2):
            found = median(rounds[ranks])
            rates = f"{found['steps']:.0f} | {found['frames']:.0f} | {python:.0f} | {found['steps'] / python:.2f}"
            print(f"| {mode} | {ranks} | {rates} |", flush=True)
    print("\nThe scripted expert:\n")
    print("| recorded | ranks | steps/s | frames/s | episodes/s |")
    print("|---|---|---|---|---|")
    for mode, episodes in EXPERT.items():
        for ranks in (1, 2):
            found = median([evaluate(ranks, MODES[mode][0], episodes, "scripted") for _ in range(ROUNDS)])
            rates = f"{found['steps']:.0f} | {found['frames']:.0f} | {found['episodes']:.1f}"
            print(f"| {mode} | {ranks} | {rates} |", flush=True)
    print()
