"""Measures calls of a Python policy in the worker of `policy_type: python`, compared with the same
policy called in one process, and with one in another process that gets pickled arrays.

A call covers the whole way from the observations of all environments (two cameras of 224x224, 64
numbers, an instruction) to one chunk of actions for each. Whoever calls a policy directly gathers
the rows into one batch, too: `direct` does so with `np.stack` into arrays that it keeps.
`multiprocessing` gathers them in the same way and sends the batch over a pipe. The policy itself
(policy_bridge_policy.py) computes next to nothing. Calls follow each other at once, or after a
pause, in which environments would step and processors fall asleep.
"""

import json
import multiprocessing
import pathlib
import statistics
import subprocess
import sys
import time

from programs import program

POLICY = pathlib.Path(__file__).with_name("policy_bridge_policy.py")
NUM_ENVS = (4, 16)
CAMERAS = ("front", "wrist")
SIDE, STATES, ACTIONS = 224, 64, 7
SETS = 3  # of observations, which follow each other as environments show new ones
WARM, CALLS = 30, 300
ROUNDS = 7
PAUSES = (0, 5)  # milliseconds before a call
AIM = 300  # microseconds above the direct call


class Gatherer:
    """Observations of environments, and the batch that they are gathered into."""

    def __init__(self, num_envs: int):
        import numpy as np

        self.np, self.num_envs = np, num_envs
        self.sets = [[self.observation(place, row) for row in range(num_envs)] for place in range(SETS)]
        self.pictures = {name: np.empty((num_envs, SIDE, SIDE, 3), np.uint8) for name in CAMERAS}
        self.state = {"state": np.empty((num_envs, STATES), np.float32)}

    def observation(self, place: int, row: int) -> dict:
        np = self.np
        shown = {name: np.full((SIDE, SIDE, 3), 20 * place + row, np.uint8) for name in CAMERAS}
        return shown | {"state": np.full(STATES, place, np.float32), "instruction": "put the cube onto the plate"}

    def gather(self, rows: list[dict]) -> dict:
        for name, batch in [*self.pictures.items(), *self.state.items()]:
            self.np.stack([row[name] for row in rows], out=batch)
        return {"pictures": self.pictures, "state": self.state, "instruction": [row["instruction"] for row in rows]}


class Episode:
    def __init__(self, env: int, episode: int, seed: int, step: int):
        self.env, self.episode, self.seed, self.step = env, episode, seed, step


def echo():
    sys.path.insert(0, str(POLICY.parent))
    from policy_bridge_policy import Echo

    return Echo({"actions": {"names": ["a"] * ACTIONS}}, "cpu", 0)


def answer(pipe) -> None:
    """The other process of `multiprocessing`."""
    answering = echo()
    while True:
        observations, rows = pipe.recv()
        pipe.send(answering.act(observations, [Episode(*row) for row in rows]))


def measure(side: str, num_envs: int, pause: int) -> None:
    """Prints the microseconds of each call, with a pause of so many milliseconds before each."""
    gatherer, micros = Gatherer(num_envs), []
    if side == "direct":
        called = echo()
    else:
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        context.Process(target=answer, args=(theirs,), daemon=True).start()
    for call in range(WARM + CALLS):
        rows = gatherer.sets[call % SETS]
        time.sleep(pause / 1000)
        begin = time.perf_counter()
        observations = gatherer.gather(rows)
        numbers = [(env, env, env, call) for env in range(num_envs)]
        if side == "direct":
            actions = called.act(observations, [Episode(*row) for row in numbers])
        else:
            pipe.send((observations, numbers))
            actions = pipe.recv()
        chunks = [chunk.copy() for chunk in actions]
        micros.append((time.perf_counter() - begin) * 1e6)
        assert all(chunk[0, 0] == call % SETS and chunk[0, 1] == rows[env]["front"][0, 0, 0] for env, chunk in enumerate(chunks))
    print(json.dumps(micros[WARM:]))


def median(command: list[str]) -> float:
    return statistics.median(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def main() -> None:
    print(f"### policy_bridge: a call of a Python policy with two pictures of 224x224 for each environment; medians of {ROUNDS} runs\n")
    commands = {
        "direct": [sys.executable, __file__, "direct"],
        "worker": [program("measure"), "bridge", "policy", sys.executable, f"{POLICY}:Echo"],
        "multiprocessing": [sys.executable, __file__, "multiprocessing"],
    }
    found = {(side, count, pause): [] for side in commands for count in NUM_ENVS for pause in PAUSES}
    for _ in range(ROUNDS):
        for (side, count, pause), values in found.items():
            calls = [str(CALLS)] if side == "worker" else []
            values.append(median([*commands[side], str(count), *calls, str(pause)]))
    print(f"| environments | pause | direct | worker | worker over direct (aim: {AIM} µs) | worker / direct | multiprocessing | multiprocessing / worker |")
    print("|---|---|---|---|---|---|---|---|")
    for count in NUM_ENVS:
        for pause in PAUSES:
            direct, worker, pickled = (statistics.median(found[side, count, pause]) for side in commands)
            cells = [f"{pause} ms", f"{direct:.0f} µs", f"{worker:.0f} µs", f"{worker - direct:+.0f} µs", f"{worker / direct:.2f}"]
            print(f"| {count} | {' | '.join(cells)} | {pickled:.0f} µs | {pickled / worker:.1f} |", flush=True)
    print()


if __name__ == "__main__":
    if sys.argv[1:]:
        measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    else:
        main()
