"""Measures cheap environments: steps per second of `rrun eval`, from its start to its exit, and of gymnasium's
AsyncVectorEnv in the same run.

Sixteen environments and random actions on both sides. AsyncVectorEnv resets in the step that ends an episode
(`SAME_STEP`) and gives its observations without a copy, which is its fastest form; its loop keeps nothing. `rrun eval`
writes its journal, syncs it, and makes its report. Every run takes at least ten seconds, interpreters and imports
included.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RRUN = os.environ.get("RRUN", str(ROOT / "target/release/rrun"))
PUSHT = pathlib.Path(os.environ.get("RRUN_SIMULATORS", ROOT / ".simulators")) / "pusht/bin/python"
NUM_ENVS = 16
PER_PROCESS = (1, 8)
SECONDS = 12
ROUNDS = int(os.environ.get("ROUNDS", 3))
GYM = {"CartPole-v1": (sys.executable, {}), "Pendulum-v1": (sys.executable, {}), "gym_pusht/PushT-v0": (str(PUSHT), {"obs_type": "state"})}


def vector(name: str, python: str, kwargs: dict) -> float:
    """Returns the steps per second of AsyncVectorEnv, in a fresh interpreter."""
    begin = time.perf_counter()
    command = [python, __file__, "--vector", name, json.dumps(kwargs), str(SECONDS)]
    steps = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    return steps / (time.perf_counter() - begin)


def measure_vector(name: str, kwargs: dict, seconds: float) -> None:
    """Steps for some seconds and prints the number of steps."""
    begin = time.perf_counter()
    import gymnasium
    from gymnasium.vector import AsyncVectorEnv, AutoresetMode

    def make():
        if name.startswith("gym_pusht/"):
            import gym_pusht  # noqa: F401
        return gymnasium.make(name, disable_env_checker=True, **kwargs)

    envs = AsyncVectorEnv([make] * NUM_ENVS, shared_memory=True, copy=False, autoreset_mode=AutoresetMode.SAME_STEP)
    envs.reset(seed=0)
    steps = 0
    while time.perf_counter() - begin < seconds:
        envs.step(envs.action_space.sample())
        steps += NUM_ENVS
    envs.close()
    print(steps)


def rrun(name: str, python: str, kwargs: dict, per_process: int, steps: int) -> tuple[float, float]:
    """Returns the steps per second of `rrun eval` with this many steps for each environment, and its seconds."""
    arguments = {"environment": f"gym:{name}", "python": python, "env_kwargs": kwargs, "num_envs": NUM_ENVS}
    arguments |= {"envs_per_process": per_process, "success": "terminated"}
    if name.startswith("gym_pusht/"):
        arguments["import"] = ["gym_pusht"]
    job = {"name": "cheap", "arena_env_args": arguments, "policy_type": "random_action", "num_steps": steps}
    with tempfile.TemporaryDirectory() as folder:
        jobs = pathlib.Path(folder, "jobs.json")
        jobs.write_text(json.dumps({"jobs": [job]}))
        words = ["eval", "--jobs", str(jobs), "--output", str(pathlib.Path(folder, "out")), "--no-video", "--export-mode=none"]
        begin = time.perf_counter()
        ended = subprocess.run([RRUN, "--nproc-per-node", "1", *words], capture_output=True, text=True)
        seconds = time.perf_counter() - begin
        assert ended.returncode == 0, ended.stderr[-3000:]
        found = json.loads(pathlib.Path(folder, "out/report.json").read_text())["per_job"][0]["env_steps"]
    return found / seconds, seconds


def rrun_for(name: str, python: str, kwargs: dict, per_process: int, known: dict) -> float:
    """Returns the same of a run that takes at least ten seconds."""
    while True:
        steps = known.setdefault((name, per_process), 4000)
        rate, seconds = rrun(name, python, kwargs, per_process, steps)
        if seconds >= 10:
            return rate
        known[name, per_process] = int(steps * 1.25 * SECONDS / max(seconds - 1, 0.5))


def main() -> None:
    print(f"### cheap: steps a second of {NUM_ENVS} environments without images, from start to exit; medians of {ROUNDS} runs\n")
    heads = [f"`rrun eval`, {count} a process | ratio" for count in PER_PROCESS]
    print(f"| environment | AsyncVectorEnv | {' | '.join(heads)} |")
    print("|---|---|" + "---|---|" * len(PER_PROCESS))
    known = {}
    for name, (python, kwargs) in GYM.items():
        if not pathlib.Path(python).exists():
            print(f"| {name} | skipped: `{python}` is not installed |" + " |" * (2 * len(PER_PROCESS)))
            continue
        sides = {"vector": lambda: vector(name, python, kwargs)}
        sides |= {count: lambda count=count: rrun_for(name, python, kwargs, count, known) for count in PER_PROCESS}
        found = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, run in sides.items():
                found[side].append(run())
        rates = {side: statistics.median(values) for side, values in found.items()}
        cells = [f"{rates[count]:.0f} | {rates[count] / rates['vector']:.2f}" for count in PER_PROCESS]
        print(f"| {name} | {rates['vector']:.0f} | {' | '.join(cells)} |", flush=True)
    print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--vector"]:
        measure_vector(sys.argv[2], json.loads(sys.argv[3]), float(sys.argv[4]))
    else:
        main()
