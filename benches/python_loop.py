"""The loop that `rrun` replaces: one `push` environment on MuJoCo's Python bindings, stepped like a
gymnasium environment.

    python_loop.py STEPS RENDER      prints {"steps": steps per second}

Per step: damped least squares on the arm's Jacobian, 20 physics ticks, the observation as numpy
arrays, and with RENDER both 224x224 cameras. No dataset and no video is written, which favours this
side.
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

os.environ.setdefault("LP_NUM_THREADS", "1")

import mujoco
import numpy as np

ASSETS = pathlib.Path(__file__).parent.parent / "runtime/src/env/mujoco/assets"
FILES = {"scene.xml": "scene.xml", "arm.xml": "arm.xml", "task.xml": "push.xml", "object.xml": "puck.xml"}
TICKS = 20


def model() -> mujoco.MjModel:
    with tempfile.TemporaryDirectory() as folder:
        for name, source in FILES.items():
            shutil.copy(ASSETS / source, pathlib.Path(folder, name))
        loaded = mujoco.MjModel.from_xml_path(str(pathlib.Path(folder, "task.xml")))
    loaded.vis.quality.shadowsize = 0
    loaded.vis.quality.offsamples = 0
    return loaded


def step(m: mujoco.MjModel, data: mujoco.MjData, site: int, delta: np.ndarray) -> dict[str, np.ndarray]:
    jacobian = np.zeros((3, m.nv))
    mujoco.mj_jacSite(m, data, jacobian, None, site)
    arm = jacobian[:, :7]
    move = arm.T @ np.linalg.solve(arm @ arm.T + 1e-4 * np.eye(3), delta)
    data.ctrl[:7] = data.qpos[:7] + move
    for _ in range(TICKS):
        mujoco.mj_step(m, data)
    return {"joint_position": data.qpos[:7].copy(), "joint_velocity": data.qvel[:7].copy(), "eef_position": data.site_xpos[site].copy()}


def main(steps: int, render: bool) -> None:
    m = model()
    data = mujoco.MjData(m)
    site = mujoco.mj_name2id(m, mujoco.mjtObj.mjOBJ_SITE, "grip")
    renderer = mujoco.Renderer(m, 224, 224) if render else None
    random = np.random.default_rng(0)
    begin = time.perf_counter()
    for number in range(steps):
        if number % 200 == 0:
            mujoco.mj_resetData(m, data)
            mujoco.mj_forward(m, data)
        observation = step(m, data, site, random.uniform(-0.05, 0.05, 3))
        if renderer:
            for camera in ("front", "wrist"):
                renderer.update_scene(data, camera)
                observation[camera] = renderer.render()
    print(json.dumps({"steps": steps / (time.perf_counter() - begin)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "1")
