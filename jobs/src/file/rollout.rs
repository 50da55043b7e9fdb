//! Reads the length of a job, and how its environments are stepped.

use serde_json::{Map, Value};

use crate::fields::{FieldError, FileFields};
use crate::job::{Length, Rollout, Sharing};
use crate::placement::check::check_steps;

/// Maximum number of episodes of a job: the report names each missing one.
pub const MAX_EPISODES: u64 = 1_000_000;

/// Maximum number of environments over all ranks.
pub(crate) const MAX_TOTAL_ENVS: u64 = 65_536;

/// Reads `total_num_envs` and `group_size`; `num_envs` is the value of the field of that name.
pub(super) fn sharing(
    fields: &mut FileFields,
    num_envs: Option<u64>,
) -> Result<Option<Sharing>, FieldError> {
    let total = fields.at_most("total_num_envs", MAX_TOTAL_ENVS)?;
    // Of RLinf: environments with the same task that stay together. Here, each has its own.
    fields.positive("group_size")?;
    match (total, num_envs) {
        (Some(total), Some(own)) => Err(fields.refuse(
            "total_num_envs",
            &format!(
                "{total} is given together with num_envs {own}; the first counts over all \
                ranks, the second in one"
            ),
        )),
        (total, _) => Ok(total.map(|total| Sharing {
            total_num_envs: total as usize,
        })),
    }
}

/// The rollout settings, and which of those that determine a length were given.
pub(super) struct RolloutFields {
    pub(super) settings: Rollout,
    /// `rollout_epoch`.
    epochs: Option<u64>,
}

pub(super) fn rollout(fields: &mut FileFields) -> Result<RolloutFields, FieldError> {
    let epochs = fields.at_most("rollout_epoch", MAX_EPISODES)?;
    let settings = Rollout {
        auto_reset: fields.bool("auto_reset")?.unwrap_or(false),
        ignore_terminations: fields.bool("ignore_terminations")?.unwrap_or(false),
        max_steps_per_rollout_epoch: fields
            .at_most("max_steps_per_rollout_epoch", u64::from(u32::MAX))?,
        pipeline_stage_num: fields
            .at_most("pipeline_stage_num", MAX_TOTAL_ENVS)?
            .map(|stages| stages as usize),
    };
    Ok(RolloutFields { settings, epochs })
}

/// Returns the length of a job: `num_episodes` or `num_steps`, otherwise computed from the epochs
/// of `num_envs` environments.
pub(super) fn length(
    fields: &mut FileFields,
    said: &RolloutFields,
    num_envs: usize,
    num_rebuilds: u64,
) -> Result<Length, FieldError> {
    let given = (
        fields.at_most("num_episodes", MAX_EPISODES)?,
        fields.positive("num_steps")?,
    );
    if let ((Some(_), _) | (_, Some(_)), Some(epochs)) = (given, said.epochs) {
        let reason = format!(
            "{epochs} is given together with {}; only one of them can end the job",
            if given.0.is_some() {
                "num_episodes"
            } else {
                "num_steps"
            }
        );
        return Err(fields.refuse("rollout_epoch", &reason));
    }
    let length = match given {
        (Some(episodes), Some(steps)) => {
            let reason = format!(
                "{steps} is given together with num_episodes {episodes}; only one of them can end \
                 the job"
            );
            return Err(fields.refuse("num_steps", &reason));
        }
        (Some(episodes), None) => Length::Episodes(episodes),
        (None, Some(steps)) => Length::Steps(steps),
        (None, None) => of_epochs(fields, said, num_envs)?,
    };
    match length {
        Length::Episodes(episodes) if episodes < num_rebuilds => Err(fields.refuse(
            "num_episodes",
            &format!(
                "{episodes} is less than num_rebuilds {num_rebuilds}; each rebuild needs an episode"
            ),
        )),
        length => Ok(length),
    }
}

/// Computes the length from epochs as in rlinf/runners/embodied_eval_runner.py. Without
/// `auto_reset`, each environment counts one episode per epoch. With it, every episode counts that
/// ends within the steps of all epochs, and only the first epoch begins with a reset.
fn of_epochs(
    fields: &FileFields,
    said: &RolloutFields,
    num_envs: usize,
) -> Result<Length, FieldError> {
    let Rollout {
        auto_reset,
        max_steps_per_rollout_epoch,
        ..
    } = said.settings;
    let epochs = said.epochs.unwrap_or(1);
    match (auto_reset, max_steps_per_rollout_epoch) {
        (true, Some(steps)) => Ok(Length::Steps(steps.saturating_mul(epochs))),
        (true, None) => Err(fields.refuse(
            "auto_reset",
            "environments never end: max_steps_per_rollout_epoch, num_steps or num_episodes is \
             required",
        )),
        (false, _)
            if said.epochs.is_some()
                || fields.has("total_num_envs")
                || max_steps_per_rollout_epoch.is_some() =>
        {
            let episodes = epochs.saturating_mul(num_envs as u64);
            if episodes > MAX_EPISODES {
                let reason = format!(
                    "{epochs} epochs of {num_envs} environments are more than {MAX_EPISODES} episodes"
                );
                return Err(fields.refuse("rollout_epoch", &reason));
            }
            Ok(Length::Episodes(episodes))
        }
        (false, _) => Ok(Length::Policy),
    }
}

/// Checks that an epoch ends with an action chunk.
pub(super) fn check_chunks(
    fields: &FileFields,
    said: &RolloutFields,
    policy: &Map<String, Value>,
) -> Result<(), FieldError> {
    let chunk = policy.get("action_chunk_length").and_then(Value::as_u64);
    let steps = said.settings.max_steps_per_rollout_epoch;
    let (Some(chunk), Some(steps)) = (chunk, steps) else {
        return Ok(());
    };
    check_steps(steps as usize, usize::try_from(chunk).unwrap_or(0))
        .map_err(|err| fields.refuse("max_steps_per_rollout_epoch", &err.to_string()))
}
