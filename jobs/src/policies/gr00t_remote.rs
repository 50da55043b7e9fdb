//! The row of `gr00t_remote_closedloop`.

use crate::policies::gr00t::{IN_BOTH, UNUSED};
use crate::policies::remote::{self, SERVER};
use crate::policies::{PolicyDescription, Setting, ValueKind};

pub(super) static ROW: PolicyDescription = remote::row(
    "gr00t_remote_closedloop",
    &["isaaclab_arena_gr00t.policy.gr00t_remote_closedloop_policy.Gr00tRemoteClosedloopPolicy"],
    "queries a GR00T server",
    r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "gr00t_remote_closedloop",
 "policy_config_dict": {"remote_host": "gpu7", "remote_port": 5555, "action_chunk_length": 8}}"#,
    &[SERVER, SETTINGS, IN_BOTH, OF_THE_SERVER, UNUSED],
);

const SETTINGS: &[Setting] = &[
    Setting::new(
        "scheduler",
        ValueKind::OneOf(&["chunk", "synced_batch"]),
        "chunk",
        "`synced_batch` is treated as `chunk`",
    ),
    Setting::new(
        "remote_noise_seeds",
        ValueKind::Flag,
        "true",
        "whether the seeds of the noise are sent",
    ),
];

/// Fields of Arena's files that the server decides, because it has the checkpoint.
const OF_THE_SERVER: &[Setting] = &[
    Setting::unused("model_path", "the checkpoint is on the server"),
    Setting::unused("vlm_path", "the checkpoint is on the server"),
    Setting::unused("embodiment_tag", "the checkpoint is on the server"),
    Setting::unused("denoising_steps", "the checkpoint is on the server"),
    Setting::unused("dtype", "the checkpoint is on the server"),
    Setting::unused("batching", "the checkpoint is on the server"),
];
