//! The names of a configuration that are read. Any other name is one of RLinf's, which has no
//! effect here, or a misspelt one of these.

use crate::fields::{FieldError, FileFields};
use crate::similar::most_similar;

/// Names of `env.eval` that are read.
pub(super) const EVAL: &[&str] = &[
    "total_num_envs",
    "auto_reset",
    "ignore_terminations",
    "max_episode_steps",
    "max_steps_per_rollout_epoch",
    "rollout_epoch",
    "environment",
    "env_type",
    "env_args",
    "enable_cameras",
    "seed",
    "video_cfg",
];

/// Names of `rollout` that are read.
pub(super) const ROLLOUT: &[&str] = &[
    "pipeline_stage_num",
    "policy_type",
    "policy_config_dict",
    "policy_args",
    "model",
    "enable_offload",
];

/// Names of `cluster` that are read.
pub(super) const CLUSTER: &[&str] = &["component_placement", "num_nodes"];

/// Settings of other sections that are read.
const ELSEWHERE: &[&str] = &[
    "algorithm.eval_rollout_epoch",
    "rollout.model.model_path",
    "rollout.model.num_action_chunks",
    "runner.logger.log_path",
];

/// Similarity above which a setting is taken for a misspelled one; the nearest name of RLinf has
/// 0.88.
const LIKE: f64 = 0.93;

/// Returns the setting that is read whose dotted name is most similar to this one, if any is
/// similar enough.
pub(super) fn nearest(name: &str) -> Option<String> {
    let below = |section: &str, keys: &[&str]| {
        keys.iter()
            .map(|key| format!("{section}.{key}"))
            .collect::<Vec<_>>()
    };
    let mut known = [
        below("env.eval", EVAL),
        below("rollout", ROLLOUT),
        below("cluster", CLUSTER),
    ]
    .concat();
    known.extend(ELSEWHERE.iter().map(|key| (*key).to_owned()));
    most_similar(name, known.iter().map(String::as_str), LIKE).map(str::to_owned)
}

/// Adds names that are not read to `unused`, and refuses one that resembles a known one.
pub(super) fn sort_out(
    fields: &FileFields,
    section: &str,
    known: &[&str],
    unused: &mut Vec<String>,
) -> Result<(), FieldError> {
    for key in fields.left() {
        if most_similar(key, known.iter().copied(), LIKE).is_some() {
            return Err(fields.unknown(key, known));
        }
        unused.push(format!("{section}{key}"));
    }
    Ok(())
}
