//! Parses the fields of a job's `arena_env_args` that concern a Python environment.

use std::path::PathBuf;

use jobs::environments::{ARENAS, DECLARED_MEMORY, PythonEnvironment, StartMethod};
use jobs::job::Job;
use jobs::refusal::Refusal;
use jobs::rules;
use jobs::settings;
use jobs::settings::kinds::{OneOrMany, PyName};
use serde_json::{Map, Value};

use crate::env::python::mapping;
use crate::python::{Variable, find_interpreter, read_variable};

/// The configuration of a job's Python environment.
#[derive(Clone, Debug, PartialEq)]
pub struct PythonSettings {
    /// Name of the environment: `gym:<id>`, `pkg.mod:factory`, `pkg.mod.factory` or
    /// `file.py:factory`.
    pub environment: String,
    /// Keyword arguments of the factory.
    pub env_kwargs: Map<String, Value>,
    /// Modules to import first.
    pub imports: Vec<String>,
    /// Path of the Python interpreter.
    pub python: PathBuf,
    /// Number of copies in one process.
    pub envs_per_process: usize,
    /// Control frequency in steps per second, if the environment does not define it.
    pub control_hz: Option<u32>,
    /// Maximum number of steps of an episode, if the environment does not define it.
    pub max_episode_steps: Option<u32>,
    /// Rule that decides whether an episode is successful.
    pub success: Option<String>,
    /// The mapping of observations and actions; validated, but not yet against the environment.
    pub mapping: Map<String, Value>,
    /// Environment variables of the process; a null value removes one.
    pub variables: Vec<Variable>,
    /// X display of the process.
    pub display: DisplayChoice,
    /// Number of episodes after which a process is replaced.
    pub recycle_after: Option<u64>,
    /// True if `reset` receives the number of the episode.
    pub pass_episode: bool,
    /// True if actions are clamped to their range before the environment gets them.
    pub clip_actions: bool,
    /// True if the episode ends when the success rule holds, even if the environment continues.
    pub end_on_success: bool,
    /// Whether the factory returns a VectorEnv; `None` means that its result decides.
    pub vector: Option<bool>,
    /// How the processes are started.
    pub start_method: StartMethod,
    /// Names of fields without effect.
    pub ignored: Vec<String>,
}

/// The X display of a simulator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisplayChoice {
    /// The display of the rank, if there is one; the command line may request another.
    Inherited,
    /// A display that is started for the simulator.
    Own,
    /// The display with this name.
    Named(String),
}

impl PythonSettings {
    /// Reads the fields of a job.
    ///
    /// # Errors
    /// Returns a [`Refusal`] for the first field that is wrong or unknown.
    pub fn new(job: &Job) -> Result<Self, Refusal> {
        rules::check_arguments(job)?;
        let given: PythonEnvironment = settings::read("arena_env_args", &own(job))?;
        check_file(&job.environment)?;
        let mapping = match given.mapping {
            Some(mapping) => mapping::read(mapping)?,
            None => Map::new(),
        };
        let python = given.python.map(|path| path.display().to_string());
        let texts = |texts: Option<OneOrMany>| texts.map_or_else(Vec::new, |texts| texts.0);
        let ignored = job.env_args.keys();
        let ignored = ignored.filter(|key| ARENAS.contains(&key.as_str()));
        Ok(Self {
            environment: job.environment.clone(),
            env_kwargs: given.env_kwargs.unwrap_or_default(),
            imports: [texts(given.import), texts(given.entry_point)].concat(),
            python: interpreter(python.as_deref())?,
            envs_per_process: given.envs_per_process as usize,
            control_hz: given.control_hz,
            max_episode_steps: given.max_episode_steps,
            success: given.success,
            mapping,
            variables: variables(&given.env.unwrap_or_default())?,
            display: display(given.display),
            recycle_after: given.recycle_after.map(u64::from),
            pass_episode: given.pass_episode,
            clip_actions: given.clip_actions,
            end_on_success: given.end_on_success,
            vector: given.vector,
            start_method: given.start_method,
            ignored: ignored.cloned().collect(),
        })
    }

    /// Returns whether the mapping uses `render()`.
    pub fn renders(&self) -> bool {
        let cameras = self.mapping.get("video").and_then(Value::as_object);
        cameras.is_some_and(|cameras| {
            cameras
                .values()
                .any(|camera| camera.get("render") == Some(&Value::Bool(true)))
        })
    }
}

/// Checks that the file exists, if the name is that of a factory in one.
fn check_file(name: &str) -> Result<(), Refusal> {
    let wanted = "and there is no such file; it is looked for from the working directory";
    match PyName::of(name) {
        Some(PyName::InFile { file, .. }) if !file.is_file() => {
            Err(refuse("environment", &name.into(), wanted))
        }
        _ => Ok(()),
    }
}

/// Refuses the value of a field; `wanted` says what is accepted, as a clause.
pub(super) fn refuse(field: &str, found: &Value, wanted: &str) -> Refusal {
    Refusal::found(format_args!("arena_env_args.{field}"), found, wanted)
}

/// Finds the interpreter: a name in `PATH`, a path, or the folder of a virtual environment.
fn interpreter(given: Option<&str>) -> Result<PathBuf, Refusal> {
    let name = given.unwrap_or("python3");
    find_interpreter(name).map_err(|reason| refuse("python", &name.into(), reason))
}

/// Returns the arguments of a job that are those of an environment in Python: without those that
/// have no effect, and without the declared GPU memory, which the planner uses.
fn own(job: &Job) -> Map<String, Value> {
    let mut own = job.env_args.clone();
    own.retain(|key, _| !ARENAS.contains(&key.as_str()) && key != DECLARED_MEMORY);
    own
}

fn variables(given: &Map<String, Value>) -> Result<Vec<Variable>, Refusal> {
    let read = given.iter().map(|(name, value)| {
        read_variable(name, value).map_err(|reason| refuse(&format!("env.{name}"), value, reason))
    });
    read.collect()
}

fn display(given: Option<String>) -> DisplayChoice {
    match given.as_deref() {
        None | Some("none") => DisplayChoice::Inherited,
        Some("auto") => DisplayChoice::Own,
        Some(name) => DisplayChoice::Named(name.to_owned()),
    }
}

#[cfg(test)]
mod tests;
