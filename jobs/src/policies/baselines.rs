//! The rows of the policies that need no model.

use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind};

const ONE_ACTION: &[Setting] = &[Setting::new(
    "action_chunk_length",
    COUNT,
    "1",
    "number of actions to execute; a chunk has one",
)];

/// What the policies here have in common.
const BASELINE: PolicyDescription = PolicyDescription {
    name: "",
    aliases: &[],
    about: "",
    page: "policy.md",
    example: "",
    settings: &[],
    memory: MemoryRule::Nothing,
    has_checkpoint: false,
    has_length: false,
    serving: Serving::Interface,
    is_remote: false,
};

pub(super) static ZERO_ACTION: PolicyDescription = PolicyDescription {
    name: "zero_action",
    aliases: &["isaaclab_arena.policy.zero_action_policy.ZeroActionPolicy"],
    about: "a baseline: the action closest to zero",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "zero_action", "num_episodes": 20}"#,
    settings: &[ONE_ACTION],
    ..BASELINE
};

pub(super) static RANDOM_ACTION: PolicyDescription = PolicyDescription {
    name: "random_action",
    aliases: &["isaaclab_arena.policy.random_action_policy.RandomActionPolicy"],
    about: "a baseline: random actions within the action space",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "random_action", "num_episodes": 20}"#,
    settings: &[ONE_ACTION],
    ..BASELINE
};

pub(super) static REPLAY_ACTION: PolicyDescription = PolicyDescription {
    name: "replay_action",
    aliases: &[
        "replay",
        "isaaclab_arena.policy.replay_action_policy.ReplayActionPolicy",
    ],
    about: "replays the actions of a recorded dataset",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "replay_action",
 "policy_config_dict": {"replay_file_path": "outputs/tonight/reach/dataset_reach.hdf5"}}"#,
    settings: &[&[
        Setting::required(
            "replay_file_path",
            // An earlier job of the same run may record it.
            ValueKind::Path(PathTo::Anything),
            "expected a file name",
            "the dataset, in robomimic layout",
        ),
        Setting::new(
            "episode_name",
            ValueKind::Text,
            "all",
            "the demonstration to replay, for example `demo_3`",
        ),
        Setting::unused("device", "the device is that of the rank").of_place(),
    ]],
    has_length: true,
    serving: Serving::Refused("it replays recorded episodes, whatever it is shown"),
    ..BASELINE
};

pub(super) static SCRIPTED: PolicyDescription = PolicyDescription {
    name: "scripted",
    about: "the expert for the built-in tasks",
    example: r#"{"name": "reach", "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "scripted",
 "policy_config_dict": {"action_horizon": 8, "action_chunk_length": 4}, "num_episodes": 20}"#,
    settings: &[&[
        Setting::new(
            "action_horizon",
            COUNT,
            "8",
            "number of steps that it plans ahead",
        ),
        Setting::new(
            "action_chunk_length",
            COUNT,
            "4",
            "number of actions to execute",
        ),
    ]],
    ..BASELINE
};
