//! The interface of an environment, for which a policy acts.

use std::time::Duration;

use jobs::job::Job;
use jobs::rank_env::RankEnv;
use tch::Device;

use crate::device::gpu;
use crate::env::{self, EnvError, EnvPlacement, EnvSpec};

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
    let made = env::make(job, seed, &place)?;
    let mut spec = made.env.spec().clone();
    if let Some(instruction) = &job.language_instruction {
        spec.language.clone_from(instruction);
    }
    Ok(spec)
}
