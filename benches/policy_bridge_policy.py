"""A policy without a network: its actions contain a number and a pixel of each row, so that the
bench can tell which call an answer belongs to.
"""

import numpy as np

HORIZON = 8


class Echo:
    spec = {"action_horizon": HORIZON}

    def __init__(self, spec, device, seed):
        self.actions = np.zeros((256, HORIZON, len(spec["actions"]["names"])), np.float32)

    def act(self, observations, episodes):
        actions = self.actions[: len(episodes)]
        actions[:, 0, 0] = observations["state"]["state"][:, 0]
        actions[:, 0, 1] = observations["pictures"]["front"][:, -1, -1, -1]
        actions[:, 0, 2] = observations["pictures"]["wrist"][:, -1, -1, -1]
        return actions
