"""An environment without physics: two cameras of 224x224 and 64 numbers, which contain only the
number of the step.
"""

import gymnasium
import numpy as np
from gymnasium import spaces

SIDE = 224


class Still(gymnasium.Env):
    metadata = {"render_fps": 20}
    observation_space = spaces.Dict(
        {
            "front": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "wrist": spaces.Box(0, 255, (SIDE, SIDE, 3), np.uint8),
            "state": spaces.Box(-np.inf, np.inf, (64,), np.float32),
        }
    )
    action_space = spaces.Box(-1.0, 1.0, (7,), np.float32)

    def __init__(self):
        picture = np.random.default_rng(0).integers(0, 255, (SIDE, SIDE, 3), np.uint8)
        self.seen = {"front": picture, "wrist": picture[::-1].copy(), "state": np.zeros(64, np.float32)}

    def reset(self, *, seed=None, options=None):
        self.seen["state"][:] = 0
        return self.seen, {"success": False}

    def step(self, action):
        self.seen["state"][0] += 1
        self.seen["state"][1] = action[0]
        return self.seen, 0.0, False, False, {"success": False}
