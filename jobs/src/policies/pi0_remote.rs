//! The row of `pi0_remote`.

use crate::policies::remote::{self, SERVER, WEBSOCKET};
use crate::policies::setting::COUNT;
use crate::policies::{PolicyDescription, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = remote::row(
    "pi0_remote",
    &["isaaclab_arena_openpi.policy.pi0_remote_policy.Pi0RemotePolicy"],
    "queries an openpi server",
    r#"{"name": "pick", "num_episodes": 20, "arena_env_args": {"environment": "envs/droid.py:make", "num_envs": 4},
 "policy_type": "pi0_remote",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 8000, "openpi_embodiment_adapter": "droid"}}"#,
    &[SERVER, WEBSOCKET, SETTINGS],
);

const SETTINGS: &[Setting] = &[
    Setting::new(
        "openpi_embodiment_adapter",
        ValueKind::OneOf(&["droid", "libero", "custom"]),
        "droid",
        "the server's names of cameras and states",
    ),
    Setting::new(
        "observation_mapping",
        ValueKind::Map("map"),
        "by adapter",
        "maps each key of the server to a camera, a state, or a list of states",
    ),
    Setting::new(
        "pov_cam_name_sim",
        ValueKind::Texts,
        "cameras by name",
        "the environment's cameras in the order of the adapter's",
    ),
    Setting::new(
        "policy_variant",
        ValueKind::Text,
        "pi05",
        "the server's checkpoint, which sets the number of actions to execute with `droid`",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "by adapter and variant",
        "number of actions to execute",
    ),
    Setting::new(
        "target_image_size",
        ValueKind::Edges,
        "224 × 224",
        "height and width of the images that are sent",
    ),
    Setting::new(
        "language_instruction",
        ValueKind::Text,
        "none",
        "used if neither job nor environment has an instruction",
    ),
    Setting::new(
        "remote_connections",
        COUNT,
        "16",
        "maximum number of connections",
    )
    .of_place(),
    // A pong is sent whenever the connection is read, and the timeout detects what a ping would
    // detect.
    Setting::unused("ping_interval", "the timeout detects what a ping would").of_place(),
    Setting::unused("ping_timeout", "the timeout detects what a ping would").of_place(),
];
