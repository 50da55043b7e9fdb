"""An environment of gymnasium whose seeds are counted, for jobs of `rrun eval` (`"environment": "…/seeded_env.py:make"`).

Benchmarks of such environments number their seeds: LeRobot resets episode i with seed 1000 + i. `rrun` derives the seed
of an episode otherwise, so this one takes the episode's number (`"pass_episode": true`).
"""

import importlib
import os

os.environ.setdefault("MUJOCO_GL", "egl")
os.environ.setdefault("PYOPENGL_PLATFORM", "egl")

import gymnasium


def make(id, first_seed, module=None, success_at_end=False, **kwargs):
    """`gymnasium.make(id, **kwargs)`; episode i is reset with seed `first_seed + i`. `module` registers the id.

    `success_at_end` adds `info["success_at_end"]`: whether `info["is_success"]` holds after the last step of the episode.
    """
    if module:
        importlib.import_module(module)
    env = gymnasium.make(id, **kwargs)
    return SeededEnv(env, first_seed, success_at_end)


class SeededEnv(gymnasium.Wrapper):
    def __init__(self, env, first_seed, success_at_end):
        super().__init__(env)
        self._first_seed = first_seed
        self._success_at_end = success_at_end

    def reset(self, *, seed=None, options=None):
        """`options["episode"]` decides; without it, the seed."""
        episode = (options or {}).get("episode")
        return self.env.reset(seed=seed if episode is None else self._first_seed + episode)

    def step(self, action):
        observation, reward, terminated, truncated, info = self.env.step(action)
        if self._success_at_end:
            info["success_at_end"] = bool(info["is_success"] and (terminated or truncated))
        return observation, reward, terminated, truncated, info
