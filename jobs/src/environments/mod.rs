//! The arguments of environments, `arena_env_args` of a job, and which names are those of
//! environments in Python.
//!
//! What the arguments of an environment may not say together, and the forms of those that are words
//! of a small language.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::kinds::{MapOrFile, OneOrMany, PyName, number, yes};
use crate::simulators::Simulator;

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
