"""Plays recorded actions as a benchmark's authors would: `authors.py SPEC.json IN.npz OUT.npz`, under its interpreter.

SPEC has `suite`, `task`, `seed` and `steps` of an episode. IN has `episodes`, their numbers, and `actions_<i>` for the i-th of them. OUT has for
the i-th what came before each action (`<i>/obs/<entry>`) and after it: `rewards`, `success`, `over`.

Nothing of rrun is imported. Each episode has an environment that has never done anything else, and numbers keep the types
that the simulator gives them.
"""

import json
import os
import sys
import warnings

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("PYOPENGL_PLATFORM", "egl")
warnings.simplefilter("ignore")

import gymnasium  # noqa: E402
import numpy as np  # noqa: E402


class MetaWorld:
    """README.md of Meta-World, "Running a benchmark", with the tasks in turn instead of a random one."""

    def __init__(self, benchmark, split, task, seed):
        import metaworld

        made = getattr(metaworld, benchmark)(seed=seed)
        classes, tasks = (made.train_classes, made.train_tasks) if split == "train" else (made.test_classes, made.test_tasks)
        self.make, self.tasks = classes[task], [one for one in tasks if one.env_name == task]
        assert len(self.tasks) == 50

    def reset(self, episode):
        self.env = self.make()
        self.env.set_task(self.tasks[episode])
        return self.env.reset()[0]

    def step(self, action):
        observation, reward, _, truncated, info = self.env.step(action)
        # metaworld/evaluation.py has the episode end with its success, or after 500 steps.
        solved = bool(info["success"])
        return observation, reward, solved, solved or truncated

    def seen(self, observation):
        return {"observation": observation}


class Gymnasium:
    """`rollout` of LeRobot's lerobot_eval.py: episode i is reset with seed `seed + i`."""

    def __init__(self, module, id, seed, steps, at_end=False, **kwargs):
        __import__(module)
        self.id, self.seed, self.at_end = id, seed, at_end
        self.kwargs = kwargs | {"max_episode_steps": steps}

    def reset(self, episode):
        self.env = gymnasium.make(self.id, disable_env_checker=True, **self.kwargs)
        return self.env.reset(seed=self.seed + episode)[0]

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        over = terminated or truncated
        return observation, reward, bool(info["is_success"] and (over or not self.at_end)), over

    def seen(self, observation):
        seen = {}
        if "agent_pos" in observation:
            seen["agent_pos"] = observation["agent_pos"]
        if "desired_goal" in observation:
            seen |= {"goal": observation["desired_goal"], "block_position": observation["observation"][3:6]}
        pictures = observation.get("pixels")
        if pictures is not None:
            seen["top"] = pictures["top"] if isinstance(pictures, dict) else pictures
        return seen


SUITES = {
    "metaworld_mt10": lambda task, seed, _: MetaWorld("MT10", "train", task, seed),
    "metaworld_mt50": lambda task, seed, _: MetaWorld("MT50", "train", task, seed),
    "metaworld_ml45_train": lambda task, seed, _: MetaWorld("ML45", "train", task, seed),
    "metaworld_ml45_test": lambda task, seed, _: MetaWorld("ML45", "test", task, seed),
    "gym_pusht": lambda task, *numbers: Gymnasium("gym_pusht", f"gym_pusht/{task}", *numbers, obs_type="pixels_agent_pos"),
    "gym_aloha": lambda task, *numbers: Gymnasium("gym_aloha", f"gym_aloha/{task}", *numbers, obs_type="pixels_agent_pos"),
    "gymnasium_fetch": lambda task, *numbers: Gymnasium("gymnasium_robotics", task, *numbers, at_end=True),
}


def play(simulator, episode, actions):
    rows = {name: [] for name in ("rewards", "success", "over")}
    observation = simulator.reset(episode)
    for action in actions:
        for name, value in simulator.seen(observation).items():
            rows.setdefault(f"obs/{name}", []).append(np.array(value))
        observation, *step = simulator.step(action)
        for name, value in zip(("rewards", "success", "over"), step):
            rows[name].append(value)
    return rows


def main(spec_path, recorded_path, out_path):
    with open(spec_path) as file:
        spec = json.load(file)
    simulator = SUITES[spec["suite"]](spec["task"], spec["seed"], spec["steps"])
    recorded, played = np.load(recorded_path), {}
    for index, episode in enumerate(recorded["episodes"]):
        rows = play(simulator, int(episode), recorded[f"actions_{index}"])
        played |= {f"{index}/{name}": np.array(values) for name, values in rows.items()}
    np.savez(out_path, **played)


main(*sys.argv[1:])
