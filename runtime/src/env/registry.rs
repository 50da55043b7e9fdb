//! Environments by name.

use std::borrow::Cow;
use std::time::Duration;

use jobs::eval_args::Screen;
use jobs::job::Job;
use jobs::known::is_python_environment;

use crate::env::egl::{Gpu, Wanted};
use crate::env::mujoco::{self, MujocoConfig};
use crate::env::python::{self, PythonConfig};
use crate::env::{Answers, EnvError, VectorEnv};

mod variation;

/// Rows and columns of a camera unless the job says otherwise.
const CAMERA_SIDE: u32 = 224;

/// An environment, and what of its job it has no use for.
pub struct Made {
    /// The environment.
    pub env: Box<dyn VectorEnv>,
    /// Fields of `arena_env_args` and `variations` without effect.
    pub ignored: Vec<String>,
    /// What the environment took for granted, or leaves out.
    pub notes: Vec<String>,
}

/// Checks the arguments of a job's environment without building anything.
///
/// # Errors
/// [`EnvError`] for an unknown name or a wrong argument.
pub fn check(job: &Job) -> Result<(), EnvError> {
    let job = variation::applied(job);
    if is_python_environment(&job.environment) {
        return python::check(&job);
    }
    mujoco::check_args(&job.environment, &job.env_args)
}

/// Where the copies of an environment are to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// For each copy the GPU that simulates and renders it.
    pub gpus: Vec<Option<Gpu>>,
    /// EGL device of all copies, where the user names one.
    pub egl_device: Option<u32>,
    /// The rank.
    pub rank: usize,
    /// The rank on this machine.
    pub local_rank: usize,
    /// Ranks on this machine.
    pub local_world_size: usize,
    /// Time without an answer after which the process of a simulator is given up.
    pub stall_timeout: Duration,
    /// Episodes after which it is replaced, unless the job says.
    pub recycle_after: Option<u64>,
    /// An X display for simulators that name none.
    pub xvfb: Option<Screen>,
}

impl Place {
    /// What each copy wants to be drawn on.
    fn egl(&self) -> Vec<Wanted> {
        let wanted =
            |gpu: &Option<Gpu>| Wanted { device: self.egl_device, gpu: gpu.clone(), local_rank: self.local_rank };
        self.gpus.iter().map(wanted).collect()
    }

    /// GPU of each copy as `nvidia-smi` counts.
    fn numbers(&self) -> Vec<Option<u32>> {
        self.gpus.iter().map(|gpu| gpu.as_ref()?.number).collect()
    }
}

/// Makes the environments of a job, one copy for each entry of the place.
///
/// # Errors
/// [`EnvError`] for an unknown name, a wrong argument, or a simulator that does not start.
pub fn make(job: &Job, place: &Place, answers: Answers) -> Result<Made, EnvError> {
    let varied: Cow<Job> = variation::applied(job);
    if is_python_environment(&job.environment) {
        return make_python(&varied, place, answers);
    }
    let mut made = make_mujoco(&varied, place, answers)?;
    for name in made.ignored.iter_mut().filter(|name| job.variations.contains_key(*name)) {
        *name = format!("variations.{name}");
    }
    Ok(made)
}

fn make_python(job: &Job, place: &Place, answers: Answers) -> Result<Made, EnvError> {
    let config = PythonConfig {
        gpus: place.numbers(),
        rank: place.rank,
        local_world_size: place.local_world_size,
        stall_timeout: place.stall_timeout,
        recycle_after: place.recycle_after,
        xvfb: place.xvfb,
    };
    let env = python::make(job, config, answers)?;
    let (ignored, notes) = (env.ignored_args().to_vec(), env.notes().to_vec());
    Ok(Made { env: Box::new(env), ignored, notes })
}

fn make_mujoco(job: &Job, place: &Place, answers: Answers) -> Result<Made, EnvError> {
    if !mujoco::TASKS.contains(&job.environment.as_str()) {
        let known = jobs::known::ENVIRONMENTS.join(", ");
        return Err(EnvError::Unknown { name: job.environment.clone(), known });
    }
    let config = MujocoConfig {
        task: job.environment.clone(),
        num_envs: place.gpus.len(),
        camera_height: CAMERA_SIDE,
        camera_width: CAMERA_SIDE,
        egl: place.egl(),
        language: job.language_instruction.clone(),
        max_episode_steps: None,
        threads: None,
    };
    let env = mujoco::make(config, &job.env_args, answers)?;
    let ignored = env.ignored_args().to_vec();
    Ok(Made { env: Box::new(env), ignored, notes: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launcher_knows_the_environments_that_are_here() {
        assert_eq!(jobs::known::ENVIRONMENTS, mujoco::TASKS);
    }
}
