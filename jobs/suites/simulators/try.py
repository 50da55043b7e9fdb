"""`try.py NAME`: one reset, one step and one picture of an installed simulator; install.sh calls it.

`try.py NAME --measure [STEPS]`: what a step costs with and without its pictures, as a row of docs/simulators.md.
"""

import pathlib
import resource
import sys
import time
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))


def pusht():
    import gym_pusht
    import gymnasium

    return gymnasium.make("gym_pusht/PushT-v0", obs_type="state", visualization_width=224, visualization_height=224)


def pusher():
    import gymnasium

    return gymnasium.make("Pusher-v5", render_mode="rgb_array", width=224, height=224)


def fetch():
    import gymnasium
    import gymnasium_robotics  # its ids

    return gymnasium.make("FetchPickAndPlace-v4", render_mode="rgb_array", width=224, height=224)


def metaworld():
    import metaworld_env

    return metaworld_env.make(size=224)


def libero():
    import libero_env

    return libero_env.make(size=256)


def aloha():
    import aloha_env

    return aloha_env.make("AlohaTransferCube-v0", first_seed=0)


MAKERS = {"pusht": pusht, "pusher": pusher, "fetch": fetch, "metaworld": metaworld, "aloha": aloha, "libero": libero}


def try_out(env):
    env.reset(seed=0)
    observation, reward, *_ = env.step(env.action_space.sample())
    picture = observation["agentview_image"] if "agentview_image" in observation else env.render()
    assert np.isfinite(reward) and picture.std() > 1.0, "the picture is empty"
    return picture.shape


def timed(call, times):
    """Wall and CPU milliseconds of one call, over `times` of them."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    return 1e3 * (time.perf_counter() - wall) / times, 1e3 * (time.process_time() - cpu) / times


def measure(name, env, made_s, steps):
    looks_by_itself = hasattr(env.unwrapped, "rendering")

    def step(look):
        if looks_by_itself:
            env.unwrapped.rendering = look
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if look and not looks_by_itself:
            env.render()
        if terminated or truncated:
            env.reset()

    env.reset(seed=0)
    step(True)
    reset_ms, _ = timed(lambda: env.reset(seed=1), 3)
    if looks_by_itself:
        env.unwrapped.rendering = False
    _, blind_ms = timed(lambda: step(False), steps)
    _, seen_ms = timed(lambda: step(True), max(steps // 10, 10))
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row = [name, f"{made_s:.1f} s", f"{reset_ms:.0f} ms", f"{blind_ms:.2f} ms", f"{seen_ms:.1f} ms", f"{memory_mb:.0f} MB"]
    print("| " + " | ".join(row) + " |")


warnings.simplefilter("ignore")
name = sys.argv[1]
start = time.perf_counter()
env = MAKERS[name]()
made_s = time.perf_counter() - start
if sys.argv[2:3] == ["--measure"]:
    measure(name, env, made_s, int(sys.argv[3]) if len(sys.argv) > 3 else 200)
else:
    height, width, _ = try_out(env)
    print(f"simulators: {name} made a step and a picture of {width} x {height}", file=sys.stderr)
env.close()
