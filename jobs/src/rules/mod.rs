//! Rules over several fields of a job, checked before anything is started: names that `rrun` knows,
//! arguments that the environment has, a length, a latency that fits, cameras that are there.
//!
//! A Python environment has a table of arguments (docs/own_simulator.md), and any other one is
//! refused. An environment of `rrun-rank` accepts arguments that other simulators use, such as
//! `embodiment`; only a name that resembles one of its own is refused. Variations replace these
//! arguments, so the same goes for them; those of a Python environment are arguments of its
//! factory, which are not known here. A variant that overrides anything else would measure nothing,
//! so it may only override the environment's own arguments.

use std::path::Path;

use serde_json::{Map, Value};

use crate::environments::{
    self, ARENAS, EveryEnvironment, PythonEnvironment, Simulator, is_python_environment, mapping,
};
use crate::eval_args::EvalArgs;
use crate::experiment::is_experiment;
use crate::job::{Job, Length, Status};
use crate::latency::{self, Delay};
use crate::policies::{self, PolicyType, canonical_policy};
use crate::refusal::{MISSPELT, Refusal, meant, most_similar};
use crate::settings::kinds::MapOrFile;
use crate::settings::{self, names};

/// Checks the names of all jobs of a file that are to run: environments, their arguments, policies.
///
/// # Errors
/// Refuses the first job with an unknown one, in the words of the file.
pub fn check(jobs: &[Job], file: &Path) -> Result<(), Refusal> {
    let mut jobs = jobs.iter();
    let known = jobs.try_for_each(|job| check_job(job, is_experiment(file)));
    known.map_err(|refusal| Refusal::in_file(file, refusal))
}

/// Checks the names of a job, if it is to run; `is_run` says whether it is a run of an Experiment.
///
/// # Errors
/// Refuses the first unknown name.
pub fn check_job(job: &Job, is_run: bool) -> Result<(), Refusal> {
    if job.status != Status::Pending {
        return Ok(());
    }
    let simulators = Simulator::environments();
    if !is_python_environment(&job.environment) && !simulators.contains(&&*job.environment) {
        return Err(unknown_environment(job, is_run, &simulators));
    }
    check_names(job).map_err(|refusal| refusal.inside(job.place()))?;
    match PolicyType::of(&job.policy_type) {
        Some(_) => Ok(()),
        None => Err(unknown_policy(job, is_run)),
    }
}

fn unknown_environment(job: &Job, is_run: bool, known: &[&str]) -> Refusal {
    let (found, known_names) = (&job.environment, known.join(", "));
    if is_run {
        // The nearest of our own tasks would be another task.
        return Refusal::at(
            format_args!("runs.{}.environment.type", job.name),
            format_args!(
                "`{found}` is not included, so name the Python factory that makes it: \
                 shared.environment.factory=FILE.py:FUNCTION; included are {known_names}"
            ),
        );
    }
    Refusal::at(
        format_args!("{} field arena_env_args.environment", job.place()),
        format_args!(
            "unknown name `{found}`{}; expected one of {known_names}, or an environment in Python: \
             `gym:ID`, `file.py:factory`, `package.module:factory`",
            meant(found, known.iter().copied())
        ),
    )
}

fn unknown_policy(job: &Job, is_run: bool) -> Refusal {
    let (found, known) = (canonical_policy(&job.policy_type), PolicyType::names());
    let hint = format!(
        "{}; expected one of {}",
        meant(found, known.iter().copied()),
        known.join(", ")
    );
    if is_run {
        let reason = format!("`{found}` is not included{hint}");
        return Refusal::at(format_args!("runs.{}.policy.type", job.name), reason);
    }
    let place = format!("{} field policy_type", job.place());
    Refusal::at(place, format_args!("unknown name `{found}`{hint}"))
}

/// Refuses the first unknown argument of a job's environment, if that is a reason to refuse it.
fn check_names(job: &Job) -> Result<(), Refusal> {
    let is_python = is_python_environment(&job.environment);
    let own = match Simulator::of(&job.environment) {
        Some(simulator) => simulator.row().fields(),
        None => names::<PythonEnvironment>(),
    };
    let variations = (!is_python).then_some(&job.variations);
    if let Some(variations) = variations.filter(|_| job.variant.is_some()) {
        check_object("variations", variations, &own, |_| true)?;
    }
    let known = [names::<EveryEnvironment>(), own].concat();
    let is_misspelt = |name: &str| most_similar(name, known.iter().copied(), MISSPELT).is_some();
    let is_refused = |name: &str| !ARENAS.contains(&name) && (is_python || is_misspelt(name));
    check_object("arena_env_args", &job.env_args, &known, is_refused)?;
    variations.map_or(Ok(()), |variations| {
        check_object("variations", variations, &known, is_refused)
    })
}

/// Refuses the first unknown name for which that is a reason to refuse it.
fn check_object(
    place: &str,
    fields: &Map<String, Value>,
    known: &[&str],
    is_refused: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    let mut names = fields.keys().map(String::as_str);
    match names.find(|name| !known.contains(name) && is_refused(name)) {
        Some(name) => Err(Refusal::unknown(place, "field", name, known)),
        None => Ok(()),
    }
}

/// Checks the jobs that are to run, as far as that is possible without their simulators, their
/// policies' files and servers. [`check`] has accepted their names.
///
/// # Errors
/// Refuses the first job that a rank would refuse when its turn comes.
pub fn check_to_run(jobs: &[Job], args: &EvalArgs) -> Result<(), Refusal> {
    let pending = || jobs.iter().filter(|job| job.status == Status::Pending);
    let in_job = |job: &Job| run_check(job, args).map_err(|refusal| refusal.inside(job.place()));
    pending().try_for_each(in_job)?;
    for job in pending().filter(|job| is_filmed(job, args)) {
        // What environments in Python have is known to the ranks alone.
        let Some(simulator) = Simulator::of(&job.environment) else {
            continue;
        };
        let known = simulator.row().cameras;
        let mut cameras = job.video.cameras.iter().flatten();
        if let Some(camera) = cameras.find(|name| !known.contains(&name.as_str())) {
            let (environment, known) = (&job.environment, known.join(", "));
            let reason = format!("`{environment}` has no camera `{camera}`; it has {known}");
            return Err(Refusal::at(job.place(), reason));
        }
    }
    Ok(())
}

fn run_check(job: &Job, args: &EvalArgs) -> Result<(), Refusal> {
    if let Some(policy) = PolicyType::of(&job.policy_type) {
        policies::check(policy, &job.policy_config)?;
    }
    check_arguments(job)?;
    check_latency(job)?;
    let has_length = job.length != Length::Policy || args.num_steps.is_some();
    if !has_length && !policies::has_length(&job.policy_type) {
        return Err(Refusal::new(format_args!(
            "neither num_episodes nor num_steps is given, and policy `{}` has no length of its \
             own; add one of them, or use --num-steps",
            job.policy_type
        )));
    }
    Ok(())
}

/// Checks the values of the environment's arguments, as far as the launcher knows them: those of the
/// simulators that run in the ranks, and those of every environment in Python, with what one says about
/// another. Variations are in force, as in a rank.
///
/// # Errors
/// Refuses the first wrong value.
pub fn check_arguments(job: &Job) -> Result<(), Refusal> {
    let varied = job.varied();
    let given = |name: &str| varied.env_args.get(name).filter(|value| !value.is_null());
    let is_python = is_python_environment(&job.environment);
    let (rows, environment) = match Simulator::of(&job.environment).map(Simulator::row) {
        Some(row) => {
            let mut environments = row.environments.iter();
            let own = environments.find(|row| row.name == job.environment);
            ((row.arguments)(), own)
        }
        None if is_python => (settings::rows::<PythonEnvironment>(), None),
        None => return Ok(()),
    };
    for row in rows {
        let Some(value) = given(&row.name) else {
            continue;
        };
        let own = match environment {
            Some(environment) => environment.argument(row),
            None => Some(row.clone()),
        };
        if let Some(own) = own.filter(|own| !own.accepts(value)) {
            let wanted = format_args!("expected {}", own.wanted);
            return Err(Refusal::found(written(job, &row.name), value, wanted));
        }
    }
    if let Some((name, wanted)) = environments::wrong(&job.environment, &varied.env_args) {
        let named = Value::from(job.environment.as_str());
        let found = given(name).unwrap_or(&named);
        return Err(Refusal::found(written(job, name), found, wanted));
    }
    // A file is for the rank to read, like the other files of an environment.
    match given("mapping") {
        Some(Value::Object(map)) if is_python => {
            mapping::read(MapOrFile::Map(map.clone())).map(drop)
        }
        _ => Ok(()),
    }
}

/// Returns an argument with the object that it was written in.
fn written(job: &Job, argument: &str) -> String {
    let is_varied = job.variations.contains_key(argument);
    let object = match is_varied && !is_python_environment(&job.environment) {
        true => "variations",
        false => "arena_env_args",
    };
    format!("{object}.{argument}")
}

/// Checks the latency of a job against its policy, and against the lengths of chunks that the job
/// gives, or that are the default. A rank checks it again with those of the policy, which may follow
/// from a checkpoint.
fn check_latency(job: &Job) -> Result<(), Refusal> {
    let Some(latency) = job.latency.filter(|latency| !latency.is_none()) else {
        return Ok(());
    };
    let Some(policy) = PolicyType::of(&job.policy_type) else {
        return Ok(());
    };
    latency::check_policy(policy)?;
    // A file of settings may have other lengths.
    let has_file = job.policy_config.contains_key(policies::YAML);
    let default = |field: &str| {
        let setting = policy.row().setting(field).filter(|_| !has_file)?;
        setting.default.parse::<u64>().ok()
    };
    let given = |field: &str| job.policy_config.get(field).and_then(Value::as_u64);
    let horizon = given("action_horizon").or_else(|| default("action_horizon"));
    let length = given("action_chunk_length")
        .or_else(|| Some(default("action_chunk_length")?.min(horizon?)));
    match (latency.delay, length, horizon) {
        (Delay::Steps(steps), Some(length), Some(horizon)) => {
            latency::check(steps, length, horizon)
        }
        _ => Ok(()),
    }
}

/// Returns whether videos of a job are made, if its environment has a camera.
pub fn is_filmed(job: &Job, args: &EvalArgs) -> bool {
    !args.no_video && job.video.save != Some(false) && job.enable_cameras != Some(false)
}

#[cfg(test)]
mod tests;
