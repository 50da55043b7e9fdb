"""Meta-World with the goal picked by episode number, for jobs of `rrun eval` (`"environment": "…/metaworld_env.py:make"`).

`gymnasium.make("Meta-World/MT1")` draws a goal at each reset from a generator of its own and ignores the seed, so that an
episode depends on how many came before it. Here episode number i has goal i of the task's 50 in a benchmark.
Works with metaworld 3.1.1.
"""

import os

os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium
import metaworld
import metaworld.env_dict
import numpy as np
from gymnasium.spaces import Box, Dict

# Parts of Meta-World's observation, m: hand, opening of the gripper (0 to 1), first object (position, quaternion), goal;
# and all of it: this step's hand, gripper and two objects, those of the step before, and the goal.
PARTS = {
    "hand_position": slice(0, 3),
    "gripper": slice(3, 4),
    "object_pose": slice(4, 11),
    "goal": slice(36, 39),
    "observation": slice(0, 39),
}
STEPS_PER_SECOND = 80
# Steps after which the simulator refuses to go on.
LONGEST_EPISODE = 500


def make(task="reach-v3", camera="corner4", size=224, benchmark_seed=0, benchmark="MT1", split="train"):
    """One task of a benchmark: MT1, MT10, MT25, MT50, ML1, ML10, ML25 or ML45, and its tasks to `train` or `test` on.

    The benchmark and its seed decide the task's 50 goals. Policies see them in an MT, and zeros in an ML.
    """
    return MetaWorldEnv(task, camera, size, goals(benchmark, split, task, benchmark_seed))


def goals(benchmark, split, task, seed):
    """The task's 50 goals, equal to those in `metaworld.MT10(seed=seed).train_tasks`.

    A benchmark draws the goals of its tasks one task after the other, from one generator. This draws those of the tasks
    before this one and stops after it: MT50 takes 10 to 20 seconds, most tasks less.
    """
    observable = metaworld._MT_OVERRIDE if benchmark.startswith("MT") else metaworld._ML_OVERRIDE
    if benchmark in ("MT1", "ML1"):
        if task not in metaworld.env_dict.ALL_V3_ENVIRONMENTS:
            raise ValueError(f"task is {task!r}, which Meta-World does not have")
        tasks = {task: metaworld.env_dict.ML1_ARGS_KWARGS[task]}
        seed += benchmark == "ML1" and split == "test"
    else:
        tasks = arguments(benchmark, split)
    if task not in tasks:
        raise ValueError(f"task is {task!r}, expected one of {', '.join(tasks)} for {benchmark} {split}")
    names = list(tasks)
    needed = {name: tasks[name] for name in names[: names.index(task) + 1]}
    drawn = metaworld._make_tasks(metaworld.env_dict.ALL_V3_ENVIRONMENTS, needed, observable, seed=seed)
    return [goal for goal in drawn if goal.env_name == task]


def arguments(benchmark, split):
    """Arguments of a benchmark's tasks by their names, in its order."""
    known = {name.removesuffix("_V3") for name in vars(metaworld.env_dict) if name.endswith("_V3")}
    if benchmark not in known or split not in ("train", "test") or (benchmark.startswith("MT") and split == "test"):
        raise ValueError(f"there is no benchmark {benchmark!r} with tasks to {split}")
    if benchmark.startswith("MT"):
        return getattr(metaworld.env_dict, f"{benchmark}_V3_ARGS_KWARGS")
    return getattr(metaworld.env_dict, f"{benchmark}_ARGS_KWARGS")[split]


class MetaWorldEnv(gymnasium.Env):
    """One task. It never terminates: `info["success"]` says whether it is solved at this step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": STEPS_PER_SECOND}
    render_mode = "rgb_array"

    def __init__(self, task, camera, size, task_goals):
        self.language = task.removesuffix("-v3").replace("-", " ")
        self._goals = task_goals
        simulator = metaworld.env_dict.ALL_V3_ENVIRONMENTS[task]
        self._env = simulator(render_mode="rgb_array", camera_name=camera, width=size, height=size)
        vectors = {name: Box(-np.inf, np.inf, (part.stop - part.start,), np.float32) for name, part in PARTS.items()}
        self.observation_space = Dict(vectors)
        self.action_space = Box(-1.0, 1.0, (4,), np.float32)

    def reset(self, *, seed=None, options=None):
        """`options["episode"]` picks the goal; nothing else is drawn."""
        super().reset(seed=seed)
        self._env.set_task(self._goals[(options or {}).get("episode", 0) % len(self._goals)])
        raw, info = self._env.reset()
        return self._observation(raw), info

    def step(self, action):
        raw, reward, terminated, truncated, info = self._env.step(np.asarray(action, np.float32))
        return self._observation(raw), float(reward), terminated, truncated, info

    def render(self):
        """`[size, size, 3]`, RGB; Meta-World's cameras hang upside down."""
        return self._env.render()[::-1, ::-1]

    def close(self):
        self._env.close()

    def _observation(self, raw):
        return {name: np.asarray(raw[part], np.float32) for name, part in PARTS.items()}
