"""`try.py NAME`: one reset, one step and one picture of an installed simulator; install.sh calls it."""

import pathlib
import sys
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pusht():
    import gym_pusht
    import gymnasium

    return gymnasium.make("gym_pusht/PushT-v0", obs_type="pixels_agent_pos")


def pusher():
    import gymnasium

    return gymnasium.make("Pusher-v5", render_mode="rgb_array", width=224, height=224)


def metaworld():
    import metaworld_env

    return metaworld_env.make()


def libero():
    import libero_env

    return libero_env.make(size=64)


warnings.simplefilter("ignore")
name = sys.argv[1]
env = {"pusht": pusht, "pusher": pusher, "metaworld": metaworld, "libero": libero}[name]()
env.reset(seed=0)
observation, reward, *_ = env.step(env.action_space.sample())
picture = observation["agentview_image"] if name == "libero" else env.render()
assert np.isfinite(reward) and picture.std() > 1.0, "the picture is empty"
print(f"simulators: {name} made a step and a picture of {picture.shape[1]} x {picture.shape[0]}", file=sys.stderr)
env.close()
