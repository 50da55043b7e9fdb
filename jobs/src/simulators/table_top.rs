//! The row of the table-top tasks (`runtime/src/env/mujoco`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::{self, kinds::number};
use crate::simulators::{EnvironmentRow, SimulatorRow};

pub(super) static ROW: SimulatorRow = SimulatorRow {
    environments: &[
        EnvironmentRow {
            name: "reach",
            about: "move the gripper to the green ball",
            max_episode_steps: 100,
            success_threshold: 0.02,
            objects: &[],
        },
        EnvironmentRow {
            name: "push",
            about: "push the yellow puck onto the green target",
            max_episode_steps: 200,
            success_threshold: 0.025,
            objects: &["puck"],
        },
        EnvironmentRow {
            name: "pick_and_place",
            about: "pick up the block and place it on the green plate",
            max_episode_steps: 240,
            success_threshold: 0.04,
            objects: &["cube", "cylinder"],
        },
    ],
    arguments: settings::rows::<TableTop>,
    cameras: &["front", "wrist"],
};

/// The arguments of a table-top task. What is not given is as the row of the task has it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct TableTop {
    /// steps after which an episode ends, 20 per second
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_episode_steps: Option<u32>,
    /// largest distance that counts as success, in metres
    #[schemars(range(min = 0.001, max = 1.0))]
    pub success_threshold: Option<f64>,
    /// the object to manipulate
    pub object: Option<String>,
    /// the same limit in seconds; only one of the two [default: max_episode_steps / 20]
    #[schemars(range(min = 0.05, max = 50_000.0))]
    pub episode_length_s: Option<f64>,
    /// steps for which the task must be solved
    // A quarter of a second.
    #[serde(default = "number::<5, u32>")]
    #[schemars(range(min = 1, max = 1000))]
    pub success_hold_steps: u32,
    /// the instruction that the policy gets [default: that of the task]
    pub task_description: Option<String>,
    /// height of an image in pixels [default: 224]
    // MuJoCo has one off-screen buffer of the largest size in each thread.
    #[schemars(range(min = 16, max = 2048))]
    pub camera_height: Option<u32>,
    /// width of an image in pixels [default: 224]
    #[schemars(range(min = 16, max = 2048))]
    pub camera_width: Option<u32>,
    /// brightness of the lights
    // As in Arena's examples; 500 leaves the scene as designed.
    #[serde(default = "number::<500, f64>")]
    #[schemars(range(min = 0.0, max = 10_000.0))]
    pub light_intensity: f64,
    /// high: with shadows and antialiasing, seven times slower on a CPU
    #[serde(default)]
    pub render_quality: Quality,
}

/// Whether images have shadows and anti-aliasing. On a CPU that takes eight times as long: 58 ms
/// instead of 7 ms for two images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Quality {
    #[default]
    Fast,
    High,
}
