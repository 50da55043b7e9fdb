//! The row of `lerobot`, and what is known of a checkpoint before lerobot loads it.

mod checkpoint;
mod mapping;

use crate::policies::python::{ENV, LIMITS, PYTHON};
use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

pub use checkpoint::{CheckpointFeature, FeatureKind, LerobotCheckpoint};
pub use mapping::{FeatureMapping, MappedCamera, MappedState};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "lerobot",
    aliases: &[],
    about: "runs a checkpoint of LeRobot by its own classes and processors",
    page: "lerobot_policy.md",
    example: r#"{"name": "reach", "num_episodes": 20,
 "arena_env_args": {"environment": "reach", "num_envs": 4, "enable_cameras": true},
 "policy_type": "lerobot",
 "policy_config_dict": {"model_path": "checkpoints/act", "python": "venvs/lerobot",
                        "mapping": {"cameras": {"observation.images.top": "front"}}}}"#,
    settings: &[SETTINGS, LIMITS],
    memory: MemoryRule::Declared,
    has_checkpoint: true,
    has_length: false,
    serving: Serving::Interface,
    // On a CPU, rows are inferred one by one, as in the rank.
    is_remote: false,
};

const SETTINGS: &[Setting] = &[
    Setting::required(
        "model_path",
        ValueKind::Path(PathTo::Checkpoint),
        "expected a checkpoint of LeRobot",
        "folder of the checkpoint, or the name of a downloaded model",
    ),
    PYTHON,
    ENV,
    Setting::new(
        "mapping",
        ValueKind::Map("object"),
        "by name",
        "`cameras` and `states` of the environment for the inputs of the checkpoint",
    ),
    Setting::new(
        "task",
        ValueKind::Text,
        "the instruction",
        "text that the policy gets instead of the instruction",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "`n_action_steps` of the checkpoint",
        "number of actions to execute",
    ),
    Setting::new(
        "config_overrides",
        ValueKind::Map("object"),
        "none",
        "fields of the checkpoint's configuration, as `--policy.FIELD=VALUE` of `lerobot-eval`",
    ),
    Setting::new(
        "seed",
        ValueKind::Seed,
        "0",
        "part of the seed of the noise",
    ),
];

#[cfg(test)]
mod tests;
