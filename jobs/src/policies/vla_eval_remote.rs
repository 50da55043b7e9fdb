//! The row of `vla_eval_remote`.

use crate::policies::remote::{self, SERVER, WEBSOCKET};
use crate::policies::setting::COUNT;
use crate::policies::{PolicyDescription, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = remote::row(
    "vla_eval_remote",
    &[],
    "queries a model server of vla-eval",
    r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "vla_eval_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 8000,
                        "observation_mapping": {"states": ["goal_position", "eef_position"]}}}"#,
    &[SERVER, WEBSOCKET, SETTINGS],
);

const SETTINGS: &[Setting] = &[
    Setting::new(
        "observation_mapping",
        ValueKind::Map("map"),
        "all cameras and states",
        "maps each key of an observation to a camera, a state, or a list of states",
    ),
    Setting::new(
        "target_image_size",
        ValueKind::Edges,
        "as rendered",
        "height and width of the images that are sent",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "1",
        "number of actions of an answer to execute",
    ),
    Setting::new(
        "task",
        ValueKind::Map("map"),
        "none",
        "what else the server is told of the task when an episode begins",
    ),
    Setting::new(
        "language_instruction",
        ValueKind::Text,
        "none",
        "used if neither job nor environment has an instruction",
    ),
];
