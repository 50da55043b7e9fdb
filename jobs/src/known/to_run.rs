//! Refuses jobs that a rank would refuse when their turn comes: wrong settings of their policy, no
//! length, cameras that their environment does not have.

use serde_json::Value;

use crate::eval_args::EvalArgs;
use crate::job::{Job, Length, Status};
use crate::known::fields::PYTHON_ARGUMENTS;
use crate::known::{JobRefusal, is_python_environment};
use crate::latency::{self, Delay, LatencyError};
use crate::policies::{self, PolicyType, Setting};
use crate::simulators::Simulator;
use crate::variation;

/// Checks the jobs that are to run, as far as that is possible without their simulators, their
/// policies' files and servers. `known::check` has accepted their names.
///
/// # Errors
/// Returns a [`JobRefusal`] for the first job that is refused.
pub fn check_to_run(jobs: &[Job], args: &EvalArgs) -> Result<(), JobRefusal> {
    let pending = || jobs.iter().filter(|job| job.status == Status::Pending);
    for job in pending() {
        if let Some(policy) = PolicyType::of(&job.policy_type) {
            policies::check(policy, &job.policy_config).map_err(|reason| JobRefusal::Setting {
                index: job.index.0,
                job: job.name.clone(),
                reason,
            })?;
        }
        check_arguments(job)?;
        check_latency(job).map_err(|reason| JobRefusal::Latency {
            index: job.index.0,
            job: job.name.clone(),
            reason,
        })?;
        let has_length = job.length != Length::Policy || args.num_steps.is_some();
        if !has_length && !policies::has_length(&job.policy_type) {
            return Err(JobRefusal::NoLength {
                index: job.index.0,
                job: job.name.clone(),
                policy: job.policy_type.clone(),
            });
        }
    }
    let filmed = || pending().filter(|job| is_filmed(job, args));
    match &args.video_cameras {
        Some(cameras) => check_option(&filmed().collect::<Vec<_>>(), cameras),
        None => filmed().try_for_each(check_own),
    }
}

/// Checks the values of the environment's arguments, as far as the launcher knows them: those of the
/// simulators that run in the ranks, and those of every environment in Python. A rank checks them
/// again, with what one says about another. Variations are in force, as in a rank.
///
/// # Errors
/// Returns a [`JobRefusal`] for the first wrong value.
pub(crate) fn check_arguments(job: &Job) -> Result<(), JobRefusal> {
    let arguments: Vec<&Setting> = match Simulator::of(&job.environment) {
        Some(simulator) => {
            let row = simulator.row();
            let mut environments = row.environments.iter();
            let environment = environments.find(|row| row.name == job.environment);
            let arguments = environment.map(|environment| row.arguments_of(environment));
            arguments.into_iter().flatten().collect()
        }
        None if is_python_environment(&job.environment) => PYTHON_ARGUMENTS.iter().collect(),
        None => return Ok(()),
    };
    let varied = variation::applied(job);
    let wrong = arguments.into_iter().find_map(|argument| {
        let value = varied.env_args.get(argument.name)?;
        let is_accepted = value.is_null() || argument.kind.accepts(value);
        (!is_accepted).then_some((argument, value))
    });
    match wrong {
        None => Ok(()),
        Some((argument, value)) => Err(JobRefusal::Argument {
            index: job.index.0,
            job: job.name.clone(),
            field: written(job, argument.name),
            found: value.to_string(),
            wanted: argument.kind.wanted().into_owned(),
        }),
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
fn check_latency(job: &Job) -> Result<(), LatencyError> {
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

/// Checks `--video-cameras`: some job must have each camera. What environments in Python have is
/// known to the ranks alone.
fn check_option(filmed: &[&Job], cameras: &[String]) -> Result<(), JobRefusal> {
    let unknown = cameras
        .iter()
        .find(|camera| filmed.iter().all(|job| lacks(job, camera)));
    match (filmed.first(), unknown) {
        (Some(job), Some(camera)) => Err(no_camera(job, camera)),
        _ => Ok(()),
    }
}

/// Checks the cameras that a job names itself.
fn check_own(job: &Job) -> Result<(), JobRefusal> {
    let mut cameras = job.video.cameras.iter().flatten();
    match cameras.find(|camera| lacks(job, camera)) {
        Some(camera) => Err(no_camera(job, camera)),
        None => Ok(()),
    }
}

/// Returns whether the environment of a job certainly does not have a camera.
fn lacks(job: &Job, camera: &str) -> bool {
    cameras(job).is_some_and(|known| !known.contains(&camera))
}

fn cameras(job: &Job) -> Option<&'static [&'static str]> {
    Simulator::of(&job.environment).map(|simulator| simulator.row().cameras)
}

fn no_camera(job: &Job, camera: &str) -> JobRefusal {
    JobRefusal::Camera {
        index: job.index.0,
        job: job.name.clone(),
        environment: job.environment.clone(),
        camera: camera.to_owned(),
        known: cameras(job).unwrap_or_default().join(", "),
    }
}
