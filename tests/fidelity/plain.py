"""Plays recorded actions in plain gymnasium: `plain.py TASK.json IN.npz OUT.npz`, under the simulator's interpreter.

The task has `id`, `import`, `kwargs`, `success` and `observe`, the entries of the observation to keep. IN has `seeds`
and, for episode `i`, `actions_<i>`. OUT has for each episode what came before each action (`<i>/obs/<entry>`) and after
it: `rewards`, `terminated`, `truncated`, `success`. Each episode has an environment that has never done anything else.

Nothing of rrun is imported, and numbers keep the types that the simulator gives them.
"""

import importlib
import json
import sys
import warnings

import numpy as np

warnings.simplefilter("ignore")
import gymnasium  # noqa: E402


def entry(observation, name):
    return observation[name] if isinstance(observation, dict) else observation


def to_space(space, action):
    """`[n]` float32 as an element of a Discrete or Box space."""
    if hasattr(space, "n"):
        return int(np.rint(action[0]))
    return action.astype(space.dtype).reshape(space.shape)


def is_solved(rule, reward, info):
    if rule.startswith("reward>="):
        return bool(reward >= float(rule.removeprefix("reward>=")))
    return bool(info[rule.removeprefix("info.")])


def play(task, seed, actions):
    env = gymnasium.make(task["id"], **task["kwargs"])
    observation, _ = env.reset(seed=int(seed))
    rows = {name: [] for name in ("rewards", "terminated", "truncated", "success")}
    seen = {name: [] for name in task["observe"]}
    for action in actions:
        for name, values in seen.items():
            values.append(np.array(entry(observation, name)))
        observation, reward, terminated, truncated, info = env.step(to_space(env.action_space, action))
        step = (reward, terminated, truncated, is_solved(task["success"], reward, info))
        for values, value in zip(rows.values(), step):
            values.append(value)
        if terminated or truncated:
            break
    env.close()
    return rows | {f"obs/{name}": values for name, values in seen.items()}


def main(task_path, recorded_path, out_path):
    with open(task_path) as file:
        task = json.load(file)
    if task["import"]:
        importlib.import_module(task["import"])
    recorded = np.load(recorded_path)
    played = {}
    for index, seed in enumerate(recorded["seeds"]):
        rows = play(task, seed, recorded[f"actions_{index}"])
        played |= {f"{index}/{name}": np.array(values) for name, values in rows.items()}
    np.savez(out_path, **played)


main(*sys.argv[1:])
