//! The row of `xpolicylab_remote`.

use crate::policies::remote::{self, SERVER, WEBSOCKET};
use crate::policies::setting::COUNT;
use crate::policies::{PolicyDescription, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = remote::row(
    "xpolicylab_remote",
    &[],
    "queries a policy server of XPolicyLab",
    r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "xpolicylab_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 6000}}"#,
    &[SERVER, WEBSOCKET, SETTINGS],
);

const SETTINGS: &[Setting] = &[
    Setting::new(
        "observation_mapping",
        ValueKind::Map("map"),
        "by name",
        "maps each key of an observation (`vision/cam_head`, `state/arm_joint_state`) to a camera, \
         a state, or a list of states",
    ),
    Setting::new(
        "action_keys",
        ValueKind::Texts,
        "`arm_joint_state`, `ee_joint_state`",
        "the server's actions, in the order of the environment's",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "as many as the server returns",
        "number of actions to execute",
    ),
    Setting::new(
        "language_instruction",
        ValueKind::Text,
        "none",
        "used if neither job nor environment has an instruction",
    ),
];
