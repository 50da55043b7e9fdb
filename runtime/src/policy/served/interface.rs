//! The interface for which a policy acts: that of an environment, or of a robot from a file.

use std::time::Duration;

use jobs::job::Job;
use jobs::rank_env::RankEnv;
use jobs::serve_args::{RobotCamera, RobotInterface};
use tch::Device;

use crate::device::gpu;
use crate::env::{self, ActionSpec, Answers, CameraSpec, EnvError, EnvPlacement, EnvSpec};

/// Time limit for a simulator that says nothing while it is made.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the interface of a job's environment, which is made with one copy and closed again.
///
/// # Errors
/// Returns an [`EnvError`] for a wrong argument, or a simulator that does not start.
pub fn of_environment(job: &Job, rank: &RankEnv, device: Device) -> Result<EnvSpec, EnvError> {
    let place = EnvPlacement {
        gpus: vec![gpu::of_machine(device)],
        egl_device: None,
        rank: rank.rank,
        local_rank: rank.local_rank.unwrap_or(rank.rank),
        local_world_size: rank.local_world_size,
        stall_timeout: STALL_TIMEOUT,
        recycle_after: None,
        xvfb: None,
    };
    let seed = jobs::seed::episode(0, job, 0);
    let made = env::make(job, seed, &place, Answers::new(|_, _| {}))?;
    let mut spec = made.env.spec().clone();
    if let Some(instruction) = &job.language_instruction {
        spec.language.clone_from(instruction);
    }
    Ok(spec)
}

/// Returns the interface of a robot.
pub fn of_robot(robot: &RobotInterface) -> EnvSpec {
    let camera = |camera: &RobotCamera| CameraSpec {
        name: camera.name.clone(),
        height: camera.height,
        width: camera.width,
    };
    EnvSpec {
        name: robot.name.clone(),
        state: robot.states.clone(),
        cameras: robot.cameras.iter().map(camera).collect(),
        action: ActionSpec {
            names: robot.action_names.clone(),
            low: robot.low.clone(),
            high: robot.high.clone(),
            grid: robot.grid.clone(),
        },
        discrete: None,
        control_hz: robot.control_hz,
        is_control_hz_assumed: false,
        max_episode_steps: robot.max_episode_steps,
        language: robot.language.clone(),
        ends_on_success: false,
        decimation: 1,
        sim_dt: 1.0 / f64::from(robot.control_hz),
    }
}

/// Returns the file of `--interface` that describes an environment.
pub fn to_robot(env: &EnvSpec) -> RobotInterface {
    let camera = |camera: &CameraSpec| RobotCamera {
        name: camera.name.clone(),
        height: camera.height,
        width: camera.width,
    };
    RobotInterface {
        name: env.name.clone(),
        cameras: env.cameras.iter().map(camera).collect(),
        states: env.state.clone(),
        action_names: env.action.names.clone(),
        low: env.action.low.clone(),
        high: env.action.high.clone(),
        grid: env.action.grid.clone(),
        control_hz: env.control_hz,
        max_episode_steps: env.max_episode_steps,
        language: env.language.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_an_environment_describes_it() {
        let mut env = crate::policy::tests::env_spec();
        env.cameras = vec![CameraSpec {
            name: "front".to_owned(),
            height: 2,
            width: 3,
        }];
        let file = to_robot(&env).to_json();
        let read = of_robot(&RobotInterface::parse(&file).unwrap());
        assert_eq!(
            (&read.state, &read.cameras, &read.action),
            (&env.state, &env.cameras, &env.action)
        );
        assert_eq!(read.max_episode_steps, env.max_episode_steps);
    }
}
