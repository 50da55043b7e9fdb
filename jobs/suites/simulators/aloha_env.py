"""gym-aloha with counted seeds, for jobs of `rrun eval` (`"environment": "…/aloha_env.py:make"`).

It adds to gym-aloha an instruction, and pictures only when somebody looks: the package draws three cameras at each step,
of which observations have one. Works with gym-aloha 0.1.5.
"""

import collections

import numpy as np
import seeded_env

# As in LeRobot's datasets of these tasks.
INSTRUCTIONS = {
    "AlohaTransferCube-v0": "Pick up the cube with the right arm and transfer it to the left arm.",
    "AlohaInsertion-v0": "Insert the peg into the socket.",
}
# Height and width of what gym-aloha draws, and the camera of its observations.
PICTURE, CAMERA = (480, 640), "top"


def make(task, first_seed, max_episode_steps=400):
    """A task by its name; episode i is reset with seed `first_seed + i`."""
    if task not in INSTRUCTIONS:
        raise ValueError(f"task is {task!r}, expected one of {', '.join(INSTRUCTIONS)}")
    env = seeded_env.make(
        f"gym_aloha/{task}",
        first_seed,
        module="gym_aloha",
        obs_type="pixels_agent_pos",
        max_episode_steps=max_episode_steps,
    )
    inner = env.unwrapped
    inner.language = INSTRUCTIONS[task]
    inner.rendering = True
    inner._env.task.get_observation = lambda physics: observation(inner, physics)
    return env


def observation(env, physics):
    """What `BimanualViperXTask.get_observation` returns, with the one picture that is used, black if nobody looks."""
    height, width = PICTURE
    if env.rendering:
        picture = physics.render(height=height, width=width, camera_id=CAMERA)
    else:
        picture = np.zeros((height, width, 3), np.uint8)
    task = env._env.task
    seen = {"qpos": task.get_qpos(physics), "qvel": task.get_qvel(physics), "env_state": task.get_env_state(physics)}
    return collections.OrderedDict(seen, images={CAMERA: picture})
