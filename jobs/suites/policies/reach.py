"""Python policies for `python_policy.json`: they move the hand to the goal, which they measure with an error."""

import numpy as np

METRES_PER_ACTION = 0.05  # of the table-top suite: how far an action of 1 moves the hand in a step
HORIZON = 4


class Reach:
    """Trusts its last measurement of the goal; `noise` is its standard deviation in metres."""

    spec = {"needs_video": False, "action_horizon": HORIZON}

    def __init__(self, spec, device, seed, noise=0.0):
        self.size, self.seed, self.noise = len(spec["actions"]["names"]), seed, noise

    def measure(self, episode, goal):
        # Drawn from the episode and its step, so that results do not depend on who runs it where.
        return np.random.default_rng([self.seed, episode.seed, episode.step]).normal(goal, self.noise)

    def act(self, observations, episodes):
        hands, goals = observations["state"]["eef_position"], observations["state"]["goal_position"]
        actions = np.zeros((len(episodes), HORIZON, self.size), np.float32)
        for row, episode in enumerate(episodes):
            away = self.measure(episode, goals[row]) - hands[row]
            actions[row, :, :3] = np.clip(away / METRES_PER_ACTION / HORIZON, -1, 1)
        return actions


class Averaging(Reach):
    """Remembers all measurements of an episode, and trusts their mean."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.measured = {}

    def reset(self, episodes):
        for episode in episodes:
            self.measured[episode.env] = []

    def measure(self, episode, goal):
        self.measured[episode.env].append(super().measure(episode, goal))
        return np.mean(self.measured[episode.env], axis=0)
