//! The environments: their arguments, `arena_env_args` of a job, and what these may not say
//! together; which names are those of environments in Python; and the simulators that run inside
//! `rrun-rank`.
//!
//! Such a simulator has one row, which launcher, memory planner and ranks read, and `rrun list`
//! prints. A new one is a row here, a variant of [`Simulator`], and a folder in `runtime/src/env`.
//! The compiler asks for the rest. A simulator in Python needs none of this.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::kinds::{MapOrFile, OneOrMany, PyName, number, yes};
use crate::settings::{self, SettingRow};

pub mod mapping;

/// The argument that declares an environment's memory.
pub const DECLARED_MEMORY: &str = "env_memory_gb";

/// Of every environment.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct EveryEnvironment {
    /// the environment
    pub environment: String,
    /// copies of the environment in a rank
    #[serde(default = "number::<1, u64>")]
    #[schemars(range(min = 1, max = crate::job::MAX_ENVS))]
    pub num_envs: u64,
    /// whether there are images and videos
    #[serde(default = "yes")]
    pub enable_cameras: bool,
    /// GPU memory of one copy in GiB [default: as `--measured RUN` has measured]
    #[schemars(range(min = 0.0, max = 1e9))]
    pub env_memory_gb: Option<f64>,
}

/// Of an environment in Python, beside [`EveryEnvironment`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct PythonEnvironment {
    /// arguments of gymnasium.make or the factory [default: none]
    pub env_kwargs: Option<Map<String, Value>>,
    /// modules to import first [default: none]
    pub import: Option<OneOrMany>,
    /// further modules to import first [default: none]
    pub entry_point: Option<OneOrMany>,
    /// interpreter, or the folder of its venv [default: python3]
    #[schemars(extend("path" = "interpreter"))]
    pub python: Option<PathBuf>,
    /// copies in one process
    #[serde(default = "number::<1, u32>")]
    #[schemars(range(min = 1))]
    pub envs_per_process: u32,
    /// forkserver: processes share their imports; spawn: each has an interpreter of its own
    #[serde(default)]
    pub start_method: StartMethod,
    /// steps per second, the frame rate of videos [default: render_fps of the environment, else 20]
    #[schemars(range(min = 1))]
    pub control_hz: Option<u32>,
    /// steps after which an episode ends; required if the environment has no limit
    /// [default: that of the environment]
    #[schemars(range(min = 1))]
    pub max_episode_steps: Option<u32>,
    /// when an episode is solved: info.KEY, is_success, terminated or reward>=X (of one step)
    /// [default: is_success or success in info]
    pub success: Option<String>,
    /// names of cameras, states and actions [default: everything, under its own name]
    pub mapping: Option<MapOrFile>,
    /// environment variables of the process; null removes one [default: none]
    pub env: Option<Map<String, Value>>,
    /// X display: auto (one of its own), none, or a name such as `:1` [default: none, or --xvfb]
    pub display: Option<String>,
    /// episodes after which the process is replaced [default: --recycle-after, else never]
    #[schemars(range(min = 1))]
    pub recycle_after: Option<u32>,
    /// call reset with the number of the episode
    #[serde(default)]
    pub pass_episode: bool,
    /// clip actions to their range
    #[serde(default)]
    pub clip_actions: bool,
    /// end an episode as soon as it is solved
    #[serde(default)]
    pub end_on_success: bool,
    /// whether the factory returns a VectorEnv [default: detected]
    pub vector: Option<bool>,
}

/// How the processes of an environment are started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(
    missing_docs,
    reason = "the names are those of Python's multiprocessing"
)]
pub enum StartMethod {
    #[default]
    Forkserver,
    Spawn,
}

/// Arguments that have no effect here, which Arena sets for every environment.
pub const ARENAS: &[&str] = &["env_spacing", "placement_seed"];

/// Returns whether a name refers to a Python environment: `gym:<id>`, `file.py:factory`,
/// `package.module:factory` or `package.module.factory`. Only Python can tell whether it exists.
pub fn is_python_environment(name: &str) -> bool {
    let is_spec_file = name.ends_with(".yaml") || name.ends_with(".yml");
    !is_spec_file && !name.contains(char::is_whitespace) && name.contains([':', '.'])
}

/// An argument that is refused: its name, and what is wrong as a clause after its value.
pub(super) type Wrong = (&'static str, &'static str);

/// Returns the first argument that no rank would accept; `null` is the same as none. Each has a
/// value of its kind.
pub(super) fn wrong(environment: &str, args: &Map<String, Value>) -> Option<Wrong> {
    let given = |name: &str| args.get(name).filter(|value| !value.is_null());
    let text = |name: &str| given(name).and_then(Value::as_str);
    if let Some(simulator) = Simulator::of(environment) {
        let mut rows = simulator.row().environments.iter();
        let has_object = rows.any(|row| row.name == environment && !row.objects.is_empty());
        if given("object").is_some() && !has_object {
            return Some(("object", "but the task has no object"));
        }
        let limits = given("episode_length_s").and(given("max_episode_steps"));
        let reason = "but `max_episode_steps` already limits the episode, only one of the two is \
                      accepted";
        return limits.map(|_| ("episode_length_s", reason));
    }
    if let Some(wanted) = wanted_name(environment) {
        return Some(("environment", wanted));
    }
    if text("success").is_some_and(|rule| !is_success_rule(rule)) {
        let wanted = "expected `info.<key>`, `is_success`, `terminated` or `reward>=X`";
        return Some(("success", wanted));
    }
    if text("display").is_some_and(|name| !["auto", "none"].contains(&name) && !name.contains(':'))
    {
        let wanted = "expected `auto`, `none` or a display, for example `:1`";
        return Some(("display", wanted));
    }
    let is_vector = environment.starts_with("gym:") && given("vector") == Some(&true.into());
    let reason = "which is for factories: an id of gymnasium makes single copies";
    is_vector.then_some(("vector", reason))
}

/// Returns what is wanted instead of the name of a Python environment, if it has a wrong form.
fn wanted_name(name: &str) -> Option<&'static str> {
    if let Some(id) = name.strip_prefix("gym:") {
        let wanted = "expected an id, for example `gym:Pusher-v5`";
        return id.is_empty().then_some(wanted);
    }
    let dotted = name.rsplit_once('.').filter(|_| !name.contains(':'));
    let named = dotted.map(|(module, factory)| format!("{module}:{factory}"));
    let wanted = "expected `gym:<id>`, `package.module:factory` or `file.py:factory`";
    PyName::of(named.as_deref().unwrap_or(name))
        .is_none()
        .then_some(wanted)
}

fn is_success_rule(rule: &str) -> bool {
    if let Some(number) = rule.strip_prefix("reward>=") {
        return number.trim().parse::<f64>().is_ok_and(f64::is_finite);
    }
    let key = rule.strip_prefix("info.");
    matches!(rule, "is_success" | "terminated") || key.is_some_and(|key| !key.trim().is_empty())
}

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
        rows.filter_map(|row| environment.argument(row)).collect()
    }

    /// Returns the names of all arguments that one of its environments has.
    pub fn fields(&self) -> Vec<&'static str> {
        let rows = (self.arguments)().iter();
        rows.map(|row| row.name.as_str()).collect()
    }
}

impl EnvironmentRow {
    /// Returns an argument of its simulator as this environment has it; `None` if it has none.
    pub(crate) fn argument(&self, row: &SettingRow) -> Option<SettingRow> {
        match (row.name.as_str(), self.objects) {
            ("max_episode_steps", _) => Some(row.with_default(self.max_episode_steps)),
            ("success_threshold", _) => Some(row.with_default(self.success_threshold)),
            ("object", []) => None,
            ("object", words @ [first, ..]) => Some(row.with_default(first).one_of(words)),
            _ => Some(row.clone()),
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
