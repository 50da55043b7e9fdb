"""Measures the bridge to Python environments: a round trip of all copies, compared with gymnasium's
AsyncVectorEnv in the same run.

Sixteen copies of `bridge_env.Still` (two cameras of 224x224, 64 numbers, no physics) step at once,
with images. The bench reads the observations of the bridge in place, like those of AsyncVectorEnv
with `copy=False`, which the next step overwrites.
"""

import json
import pathlib
import statistics
import subprocess
import sys
import time

from programs import program

ENVIRONMENT = pathlib.Path(__file__).with_name("bridge_env.py")
NUM_ENVS = 16
STEPS = 400
ROUNDS = 5
PER_PROCESS = (1, 2, 4, 8, 16)


def bridge(per_process: int) -> float:
    """Returns the median microseconds of a round trip through `rrun`'s bridge."""
    command = [program("measure"), "bridge", "environment", sys.executable, f"{ENVIRONMENT}:Still", str(NUM_ENVS), str(per_process), str(STEPS)]
    return statistics.median(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def vector(copy: bool) -> float:
    """Returns the same of AsyncVectorEnv, in a fresh interpreter."""
    command = [sys.executable, __file__, "--vector", str(int(copy))]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure_vector(copy: bool) -> None:
    import numpy as np
    from gymnasium.vector import AsyncVectorEnv

    sys.path.insert(0, str(ENVIRONMENT.parent))
    from bridge_env import Still

    envs = AsyncVectorEnv([Still] * NUM_ENVS, shared_memory=True, copy=copy)
    envs.reset(seed=0)
    actions, times = np.zeros((NUM_ENVS, 7), np.float32), []
    for step in range(30 + STEPS):
        actions[:] = step / 1e6
        begin = time.perf_counter()
        seen = envs.step(actions)[0]
        times.append(time.perf_counter() - begin)
        assert (seen["state"][:, 1] == actions[:, 0]).all()
    envs.close()
    print(statistics.median(times[30:]) * 1e6)


def main() -> None:
    print(f"### bridge: round trip of {NUM_ENVS} environments with two cameras of 224x224; medians of {ROUNDS} runs\n")
    sides = {f"{count} a process": lambda count=count: bridge(count) for count in PER_PROCESS}
    sides |= {f"AsyncVectorEnv(copy={copy})": lambda copy=copy: vector(copy) for copy in (False, True)}
    found = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, run in sides.items():
            found[name].append(run())
    medians = {name: statistics.median(values) for name, values in found.items()}
    print("| | µs a round trip | AsyncVectorEnv(copy=False) takes | AsyncVectorEnv(copy=True) takes |")
    print("|---|---|---|---|")
    in_place, copied = (medians[f"AsyncVectorEnv(copy={copy})"] for copy in (False, True))
    for name, value in medians.items():
        print(f"| {name} | {value:.0f} | {in_place / value:.1f} times | {copied / value:.1f} times |", flush=True)
    print()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--vector"]:
        measure_vector(sys.argv[2] == "1")
    else:
        main()
