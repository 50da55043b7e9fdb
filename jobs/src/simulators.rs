//! The simulators that run inside `rrun-rank`: one row each, which launcher, memory planner and
//! ranks read, and `rrun list` prints.
//!
//! A new simulator is a row here, a variant of [`Simulator`], and a folder in
//! `runtime/src/env`. The compiler asks for the rest. A simulator in Python needs none of this.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::settings::kinds::number;
use crate::settings::{self, SettingRow};

/// What is known about a simulator without building it.
#[derive(Debug)]
pub struct SimulatorRow {
    /// Its environments.
    pub environments: &'static [EnvironmentRow],
    /// The arguments of its environments, beside those of every environment.
    pub arguments: fn() -> &'static [SettingRow],
    /// Names of the cameras that every environment has.
    pub cameras: &'static [&'static str],
}

/// What is known about an environment of a simulator.
#[derive(Debug)]
pub struct EnvironmentRow {
    /// Its name in `arena_env_args.environment`.
    pub name: &'static str,
    /// The task, in one line: the instruction that policies get.
    pub about: &'static str,
    /// Whether policy `scripted` solves it.
    pub has_expert: bool,
    /// Default of `max_episode_steps`.
    pub max_episode_steps: u32,
    /// Default of `success_threshold`, in metres.
    pub success_threshold: f64,
    /// The words of `object`, the default first; without any there is no such argument.
    pub objects: &'static [&'static str],
}

impl SimulatorRow {
    /// Returns the names of its environments.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.environments.iter().map(|environment| environment.name)
    }

    /// Returns the arguments of one of its environments, with its defaults, besides those of every
    /// environment.
    pub fn arguments_of(&self, environment: &EnvironmentRow) -> Vec<SettingRow> {
        let rows = (self.arguments)().iter();
        rows.filter_map(|row| Some(environment.argument(row)?.into_owned()))
            .collect()
    }

    /// Returns the names of all arguments that one of its environments has.
    pub fn fields(&self) -> Vec<&'static str> {
        let rows = (self.arguments)().iter();
        rows.map(|row| row.name.as_str()).collect()
    }
}

impl EnvironmentRow {
    /// Returns an argument of its simulator as this environment has it; `None` if it has none.
    pub(crate) fn argument<'a>(&self, row: &'a SettingRow) -> Option<Cow<'a, SettingRow>> {
        match (row.name.as_str(), self.objects) {
            ("max_episode_steps", _) => Some(Cow::Owned(row.with_default(self.max_episode_steps))),
            ("success_threshold", _) => Some(Cow::Owned(row.with_default(self.success_threshold))),
            ("object", []) => None,
            ("object", words @ [first, ..]) => {
                Some(Cow::Owned(row.with_default(first).one_of(words)))
            }
            _ => Some(Cow::Borrowed(row)),
        }
    }
}

/// A simulator of `rrun-rank`. A `match` on it has an arm for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulator {
    /// The table-top tasks, on MuJoCo.
    TableTop,
}

impl Simulator {
    /// All simulators, in the order in which messages name their environments.
    pub const ALL: &[Self] = &[Self::TableTop];

    /// Returns what is known about this simulator.
    pub fn row(self) -> &'static SimulatorRow {
        match self {
            Self::TableTop => &TABLE_TOP,
        }
    }

    /// Returns the simulator of an environment; `None` for one in Python, or an unknown one.
    pub fn of(environment: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|simulator| simulator.row().names().any(|name| name == environment))
    }

    /// Returns the environments of all simulators.
    pub fn environments() -> Vec<&'static str> {
        let rows = Self::ALL.iter().map(|simulator| simulator.row());
        rows.flat_map(SimulatorRow::names).collect()
    }
}

static TABLE_TOP: SimulatorRow = SimulatorRow {
    environments: &[
        EnvironmentRow {
            name: "reach",
            about: "move the gripper to the green ball",
            has_expert: true,
            max_episode_steps: 100,
            success_threshold: 0.02,
            objects: &[],
        },
        EnvironmentRow {
            name: "push",
            about: "push the yellow puck onto the green target",
            has_expert: true,
            max_episode_steps: 200,
            success_threshold: 0.025,
            objects: &["puck"],
        },
        EnvironmentRow {
            name: "pick_and_place",
            about: "pick up the block and place it on the green plate",
            has_expert: true,
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
