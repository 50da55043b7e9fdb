//! The row of the table-top tasks (`runtime/src/env/mujoco`).

use crate::simulators::{SimulatorMemory, SimulatorRow};

pub(super) static ROW: SimulatorRow = SimulatorRow {
    environments: &["reach", "push", "pick_and_place"],
    fields: &[
        "camera_height",
        "camera_width",
        "max_episode_steps",
        "episode_length_s",
        "success_hold_steps",
        "success_threshold",
        "light_intensity",
        "task_description",
        "object",
        "render_quality",
    ],
    cameras: &["front", "wrist"],
    memory: SimulatorMemory::Unknown,
};
