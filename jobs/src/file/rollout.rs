//! The length of a job: what its entry says, or what its epochs amount to.

use serde_json::{Map, Value};

use crate::file::entry::{Entry, Wrong};
use crate::job::Length;
use crate::placement::check::check_steps;

/// Maximum number of episodes of a job: the report names each missing one.
pub const MAX_EPISODES: u64 = 1_000_000;

/// Returns the length of a job: `num_episodes` or `num_steps`, otherwise computed from the epochs
/// of `num_envs` environments.
pub(super) fn length(entry: &Entry, num_envs: usize) -> Result<Length, Wrong> {
    let with = |field: &str, value: u64| {
        format!("{value} is given together with {field}; only one of them can end the job")
    };
    let num_rebuilds = entry.num_rebuilds.unwrap_or(1);
    let length = match (entry.num_episodes, entry.num_steps, entry.rollout_epoch) {
        (Some(_), _, Some(epochs)) => return Err(("rollout_epoch", with("num_episodes", epochs))),
        (None, Some(_), Some(epochs)) => return Err(("rollout_epoch", with("num_steps", epochs))),
        (Some(episodes), Some(steps), None) => {
            return Err((
                "num_steps",
                with(&format!("num_episodes {episodes}"), steps),
            ));
        }
        (Some(episodes), None, None) => Length::Episodes(episodes),
        (None, Some(steps), None) => Length::Steps(steps),
        (None, None, epochs) => of_epochs(entry, epochs, num_envs)?,
    };
    match length {
        Length::Episodes(episodes) if episodes < num_rebuilds => {
            let reason = format!(
                "{episodes} is less than num_rebuilds {num_rebuilds}; each rebuild needs an episode"
            );
            Err(("num_episodes", reason))
        }
        length => Ok(length),
    }
}

/// Computes the length from epochs as in rlinf/runners/embodied_eval_runner.py. Without
/// `auto_reset`, each environment counts one episode per epoch. With it, every episode counts that
/// ends within the steps of all epochs, and only the first epoch begins with a reset.
fn of_epochs(entry: &Entry, given: Option<u64>, num_envs: usize) -> Result<Length, Wrong> {
    let epochs = given.unwrap_or(1);
    let steps = entry.max_steps_per_rollout_epoch;
    match (entry.auto_reset == Some(true), steps) {
        (true, Some(steps)) => Ok(Length::Steps(steps.saturating_mul(epochs))),
        (true, None) => {
            let reason = "environments never end: max_steps_per_rollout_epoch, num_steps or \
                          num_episodes is required";
            Err(("auto_reset", reason.to_owned()))
        }
        (false, _) if given.is_some() || entry.total_num_envs.is_some() || steps.is_some() => {
            let episodes = epochs.saturating_mul(num_envs as u64);
            if episodes > MAX_EPISODES {
                let reason = format!(
                    "{epochs} epochs of {num_envs} environments are more than {MAX_EPISODES} episodes"
                );
                return Err(("rollout_epoch", reason));
            }
            Ok(Length::Episodes(episodes))
        }
        (false, _) => Ok(Length::Policy),
    }
}

/// Checks that an epoch ends with an action chunk.
pub(super) fn check_chunks(steps: Option<u64>, policy: &Map<String, Value>) -> Result<(), Wrong> {
    let chunk = policy.get("action_chunk_length").and_then(Value::as_u64);
    let (Some(chunk), Some(steps)) = (chunk, steps) else {
        return Ok(());
    };
    check_steps(steps as usize, usize::try_from(chunk).unwrap_or(0))
        .map_err(|err| ("max_steps_per_rollout_epoch", err.to_string()))
}
