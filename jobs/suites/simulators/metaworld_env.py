"""Meta-World with the goal picked by episode number, for jobs of `rrun eval` (`"environment": "…/metaworld_env.py:make"`).

`gymnasium.make("Meta-World/MT1")` draws a goal at each reset from a generator of its own and ignores the seed, so that an
episode depends on how many came before it. Here episode number i has goal i of the benchmark's 50.
Works with metaworld 3.1.1.
"""

import os

os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium
import metaworld
import numpy as np
from gymnasium.spaces import Box, Dict

# Parts of Meta-World's observation, m: hand, opening of the gripper (0 to 1), first object (position, quaternion), goal.
PARTS = {"hand_position": slice(0, 3), "gripper": slice(3, 4), "object_pose": slice(4, 11), "goal": slice(36, 39)}
STEPS_PER_SECOND = 80
# Steps after which the simulator refuses to go on.
LONGEST_EPISODE = 500


def make(task="reach-v3", camera="corner4", size=224, benchmark_seed=0):
    """One task of Meta-World's 50; the benchmark's seed decides its 50 goals."""
    return MetaWorldEnv(task, camera, size, benchmark_seed)


class MetaWorldEnv(gymnasium.Env):
    """One task. It never terminates: `info["success"]` says whether it is solved at this step."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": STEPS_PER_SECOND}
    render_mode = "rgb_array"

    def __init__(self, task, camera, size, benchmark_seed):
        benchmark = metaworld.MT1(task, seed=benchmark_seed)
        self.language = task.removesuffix("-v3").replace("-", " ")
        self._goals = benchmark.train_tasks
        simulator = benchmark.train_classes[task]
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
