//! Checks once, before ranks start, that files and modules named by jobs exist on this node, so
//! that not every rank has to find out.
//!
//! ```text
//! pending jobs ─┬─ policy       folder of a checkpoint, file of a module or of settings,
//!               │               package for this machine
//!               └─ environment, policy in Python  script, interpreter
//!                                                 └─ one short process per interpreter ─► modules
//! ```
//! Of a checkpoint it reads what the launcher knows: the files of a LeRobot policy, what a compiled
//! package says about itself and this machine, and the cameras of both, if those of the environment
//! are known without starting it.
//!
//! Ranks look for the same files whichever jobs they get, so nothing is refused here that would
//! have run. A module counts as missing only if nothing that runs before its import can provide it.
//! If the check itself fails for any other reason, it is left to the ranks.

mod modules;

use std::path::{Path, PathBuf};

use jobs::environments::{Simulator, is_python_environment};
use jobs::exported::{Input, Machine, Package};
use jobs::hub;
use jobs::job::{Job, Status};
use jobs::policies::PolicyType;
use jobs::policies::lerobot::{FeatureMapping, LerobotCheckpoint};
use jobs::programs::{find, interpreter_at};
use jobs::refusal::Refusal;
use jobs::settings::PathTo;
use jobs::settings::kinds::PyName;
use serde_json::Value;

use crate::cli::Environment;
use crate::installed;
use crate::node::nvml;
use modules::ModuleUser;
pub use modules::{NeededPython, check_trackers};

/// The interpreter of an environment or policy that names none.
const PYTHON: &str = "python3";

/// Something that a job names and that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("job {index} ({job}): {what}")]
pub struct Missing {
    /// Position of the job in the jobs file.
    pub index: usize,
    /// Name of the job in the jobs file.
    pub job: String,
    /// What is missing, and what helps.
    pub what: String,
}

impl Missing {
    fn of(job: &Job, what: String) -> Self {
        Self {
            index: job.index.0,
            job: job.name.clone(),
            what,
        }
    }
}

/// Checks that everything exists that the pending jobs name. `gpus` is the number of GPUs that this
/// node shows.
///
/// # Errors
/// Returns the first thing that is certainly missing.
pub fn check(jobs: &[Job], env: &Environment, gpus: usize) -> Result<(), Missing> {
    let mut pythons = pythons(jobs, env, gpus)?.into_iter();
    pythons.try_for_each(NeededPython::check)
}

/// Does the same without asking interpreters for modules. Returns the interpreters of the pending
/// jobs, with what their workers import.
///
/// # Errors
/// As [`check`], without missing modules.
pub fn pythons(jobs: &[Job], env: &Environment, gpus: usize) -> Result<Vec<NeededPython>, Missing> {
    let mut pythons = Vec::new();
    for job in jobs.iter().filter(|job| job.status == Status::Pending) {
        check_policy(job, env, gpus).map_err(|what| Missing::of(job, what))?;
        if PolicyType::of(&job.policy_type) == Some(PolicyType::Lerobot) {
            let checked = check_lerobot(job, env);
            checked.map_err(|err| Missing::of(job, err.to_string()))?;
        }
        add_pythons(&mut pythons, job, env).map_err(|what| Missing::of(job, what))?;
    }
    Ok(pythons)
}

/// Adds the interpreters of a job.
fn add_pythons(all: &mut Vec<NeededPython>, job: &Job, env: &Environment) -> Result<(), String> {
    let policy = PolicyType::of(&job.policy_type);
    if matches!(policy, Some(PolicyType::Python | PolicyType::Lerobot)) {
        let given = job.policy_config.get("python").and_then(Value::as_str);
        let python = check_interpreter(ModuleUser::Policy, given, env)?;
        NeededPython::add(all, job, ModuleUser::Policy, python);
    }
    if is_python_environment(&job.environment) {
        let python = check_environment(job, env)?;
        NeededPython::add(all, job, ModuleUser::Environment, python);
    }
    Ok(())
}

/// Checks the files that the job itself names for its policy. Whatever is in a YAML file of
/// settings is left to the ranks.
fn check_policy(job: &Job, env: &Environment, gpus: usize) -> Result<(), String> {
    let Some(policy) = PolicyType::of(&job.policy_type) else {
        return Ok(());
    };
    for setting in policy.row().settings() {
        let name = setting.name.as_str();
        let given = job.policy_config.get(name).and_then(Value::as_str);
        match (setting.path, given) {
            (Some(PathTo::Package), Some(path)) => {
                check_path(name, path, PathTo::File, env)?;
                let checked = check_package(job, Path::new(path), gpus);
                checked.map_err(|err| err.to_string())?;
            }
            (Some(to), Some(path)) => check_path(name, path, to, env)?,
            (None, Some(callable)) if setting.is_callable() => check_factory(name, callable)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_path(setting: &str, path: &str, to: PathTo, env: &Environment) -> Result<(), String> {
    match to {
        // An interpreter is looked for with its default.
        PathTo::Anything | PathTo::Interpreter => Ok(()),
        PathTo::File | PathTo::Package => {
            check_file(&format!("`policy_config_dict.{setting}` is"), path.as_ref())
        }
        PathTo::Checkpoint => match checkpoint(path, env) {
            Ok(_) => Ok(()),
            Err(refusal) => Err(refusal.to_string()),
        },
    }
}

/// Checks the file of a Python callable, if its name has one.
fn check_factory(setting: &str, name: &str) -> Result<(), String> {
    match PyName::of(name) {
        Some(PyName::InFile { file, .. }) => {
            check_file(&format!("`policy_config_dict.{setting}` names"), &file)
        }
        _ => Ok(()),
    }
}

/// Checks a file that a field of a job is or names.
fn check_file(field: &str, path: &Path) -> Result<(), String> {
    match path.is_file() {
        true => Ok(()),
        false => Err(format!(
            "{field} `{}`, and there is no such file; it is looked for from the working directory",
            path.display()
        )),
    }
}

/// Returns the folder of a checkpoint, or of a downloaded model.
fn checkpoint(given: &str, env: &Environment) -> Result<PathBuf, Refusal> {
    hub::checkpoint(Path::new(given), |variable| {
        env.get(variable).map(Into::into)
    })
}

/// Checks the checkpoint of a job whose policy is a LeRobot policy and whose `model_path` exists.
///
/// # Errors
/// Returns what a rank would refuse.
fn check_lerobot(job: &Job, env: &Environment) -> Result<(), Refusal> {
    let config = &job.policy_config;
    let given = config.get("model_path").and_then(Value::as_str);
    let Some(folder) = given.and_then(|given| checkpoint(given, env).ok()) else {
        return Ok(());
    };
    let checkpoint = LerobotCheckpoint::read(&folder)?;
    let length = config
        .get("action_chunk_length")
        .and_then(Value::as_u64)
        .and_then(|length| usize::try_from(length).ok());
    checkpoint.check_chunk_length(length)?;
    let given = config.get("mapping").and_then(Value::as_object);
    let mapping = given.map_or_else(|| Ok(FeatureMapping::default()), FeatureMapping::read)?;
    let has_cameras = job.enable_cameras != Some(false);
    match Simulator::of(&job.environment).filter(|_| has_cameras) {
        Some(simulator) => mapping
            .cameras(&checkpoint, &job.environment, simulator.row().cameras)
            .map(drop),
        None => Ok(()),
    }
}

/// Checks the package at `path` for a job on a node with `gpus` visible GPUs. Ranks check the rest:
/// their own device, and what environments in Python show.
fn check_package(job: &Job, path: &Path, gpus: usize) -> Result<(), Refusal> {
    let package = Package::read(path)?;
    package.check(&Machine::here())?;
    check_gpus(&package, gpus, &nvml::compute_capabilities())?;
    check_cameras(job, &package)
}

/// Refuses a package for GPUs if there are none, or none for which it was compiled.
fn check_gpus(package: &Package, gpus: usize, capabilities: &[u32]) -> Result<(), Refusal> {
    if !package.compiled_for.is_cuda() {
        return Ok(());
    }
    if gpus == 0 {
        return Err(package.refuse(
            "it was compiled for a GPU, but no GPU is visible here; export it with `--device cpu`",
        ));
    }
    let fits = package.compiled_for.check_gpus(0, capabilities);
    fits.map_err(|refusal| package.refuse(refusal))
}

/// Refuses a camera that a simulator of ours certainly does not have.
fn check_cameras(job: &Job, package: &Package) -> Result<(), Refusal> {
    let Some(simulator) = Simulator::of(&job.environment) else {
        return Ok(());
    };
    let known = simulator.row().cameras;
    let renamed = job.policy_config.get("cameras");
    let inputs = package.description.inputs.iter();
    let names = inputs.flat_map(|input| match input {
        Input::Cameras(cameras) => cameras.names.as_slice(),
        _ => &[],
    });
    for name in names {
        let other = renamed.and_then(|names| names.get(name));
        let camera = other.and_then(Value::as_str).unwrap_or(name);
        if !known.contains(&camera) {
            return Err(Refusal::new(format_args!(
                "`{}` reads the camera `{camera}`, but `{}` has {}; `policy_config_dict.cameras` \
                 gives cameras other names",
                package.path.display(),
                job.environment,
                known.join(", ")
            )));
        }
    }
    Ok(())
}

/// Checks script and mapping of an environment, and its interpreter; returns the interpreter.
fn check_environment(job: &Job, env: &Environment) -> Result<PathBuf, String> {
    if let Some((stem, _)) = job.environment.rsplit_once(".py:") {
        let script = format!("{stem}.py");
        check_file("`arena_env_args.environment` names", script.as_ref())?;
    }
    let given = |name: &str| job.env_args.get(name).and_then(Value::as_str);
    if let Some(mapping) = given("mapping") {
        check_file("`arena_env_args.mapping` is", mapping.as_ref())?;
    }
    check_interpreter(ModuleUser::Environment, given("python"), env)
}

/// Returns the interpreter that a job names, or the default.
fn check_interpreter(
    user: ModuleUser,
    given: Option<&str>,
    env: &Environment,
) -> Result<PathBuf, String> {
    let object = user.object();
    let path = interpreter_at(Path::new(given.unwrap_or(PYTHON)));
    match (find(&path, env.get("PATH")), given) {
        (Some(_), _) => Ok(path),
        (None, Some(given)) => {
            let folder = installed::examples().ok().flatten();
            let command = folder.and_then(|folder| installed::install_command(given, &folder));
            let how = command.map(|command| format!("; `{command}` makes it"));
            Err(format!(
                "`{object}.python` is `{given}`, expected an interpreter or the folder of a venv{}",
                how.unwrap_or_default()
            ))
        }
        (None, None) => Err(format!(
            "there is no `{PYTHON}` in PATH; set `{object}.python` to an interpreter or a venv"
        )),
    }
}

#[cfg(test)]
mod tests;
