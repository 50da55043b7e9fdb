"""Picks and places in plain FetchPickAndPlace: `fetch_expert.py SEEDS OUT.npz`, under the simulator's interpreter.

OUT has `seeds` and `actions`, `[episodes, 50, 4]` float32. Every episode is solved before its time is over, and goes on.
"""

import sys

import gymnasium
import gymnasium_robotics  # noqa: F401, its ids
import numpy as np

GAIN = 10.0  # of an action for a metre
ABOVE = np.array([0.0, 0.0, 0.08])  # m
NEAR = 0.015  # m


class Expert:
    """Above the block, down, close, to the goal: a stage follows when the last is done."""

    def __init__(self):
        self.stage, self.held = "above", 0

    def act(self, observation):
        hand, block = observation["observation"][:3], observation["observation"][3:6]
        if self.stage == "above" and np.linalg.norm(block + ABOVE - hand) < NEAR:
            self.stage = "down"
        elif self.stage == "down" and np.linalg.norm(block - hand) < NEAR:
            self.stage = "close"
        elif self.stage == "close":
            self.held += 1
            if self.held == 3:
                self.stage = "carry"
        target, grip = {
            "above": (block + ABOVE, 1.0),
            "down": (block, 1.0),
            "close": (hand, -1.0),
            "carry": (hand + observation["desired_goal"] - block, -1.0),
        }[self.stage]
        return np.append(np.clip(GAIN * (target - hand), -1, 1), grip).astype(np.float32)


def play(env, seed):
    expert, actions, over = Expert(), [], False
    observation, _ = env.reset(seed=seed)
    while not over:
        actions.append(expert.act(observation))
        observation, _, terminated, truncated, info = env.step(actions[-1])
        over = terminated or truncated
    return actions, info["is_success"]


def main(count, out_path):
    env = gymnasium.make("FetchPickAndPlace-v4")
    seeds = range(int(count))
    played = [play(env, seed) for seed in seeds]
    solved = sum(map(bool, (success for _, success in played)))
    print(f"{solved} of {len(seeds)} solved")
    np.savez(out_path, seeds=seeds, actions=np.array([actions for actions, _ in played]))


main(*sys.argv[1:])
