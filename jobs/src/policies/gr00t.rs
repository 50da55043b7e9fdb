//! The row of `gr00t`, and the settings that a GR00T policy has here and on a server.

use crate::policies::setting::COUNT;
use crate::policies::{MemoryRule, PathTo, PolicyDescription, Serving, Setting, ValueKind, YAML};

pub(super) static ROW: PolicyDescription = PolicyDescription {
    name: "gr00t",
    aliases: &[
        "gr00t_closedloop",
        "isaaclab_arena_gr00t.policy.gr00t_closedloop_policy.Gr00tClosedloopPolicy",
    ],
    about: "runs an unmodified GR00T N1.7 checkpoint on libtorch; Arena's name `gr00t_closedloop` and the dotted class \
            path are aliases",
    page: "policy.md",
    example: r#"{"name": "reach", "num_episodes": 20, "arena_env_args": {"environment": "reach", "num_envs": 4},
 "policy_type": "gr00t",
 "policy_config_dict": {"model_path": "jobs/suites/demo_policy", "action_chunk_length": 8}}"#,
    settings: &[SETTINGS, IN_BOTH, UNUSED],
    memory: MemoryRule::Gr00t,
    has_checkpoint: true,
    has_length: false,
    serving: Serving::OwnKeys,
    is_remote: false,
};

const SETTINGS: &[Setting] = &[
    Setting::required(
        "model_path",
        ValueKind::Path(PathTo::Checkpoint),
        "expected a checkpoint, here or in the policy_config_yaml_path",
        "folder of the checkpoint, or the name of a downloaded model",
    ),
    Setting::new(
        "vlm_path",
        ValueKind::Path(PathTo::Anything),
        "`vlm/` in the checkpoint",
        "folder of the backbone's tokenizer and configuration",
    ),
    Setting::new(
        "embodiment_tag",
        ValueKind::Text,
        "the checkpoint's only one",
        "tag or enum name, case-insensitive",
    ),
    Setting::new(
        "denoising_steps",
        COUNT,
        "from the checkpoint",
        "Euler steps",
    ),
    Setting::new(
        "dtype",
        ValueKind::OneOf(&["bfloat16", "float32"]),
        "`bfloat16` on a GPU, `float32` on a CPU",
        "element type of the computation",
    ),
    Setting::new(
        "batching",
        ValueKind::OneOf(&["by_length", "padded"]),
        "by_length",
        "whether prompts of different lengths share a batch",
    ),
    Setting::new(
        "rtc_ramp_rate",
        ValueKind::Number(0.0, 1000.0),
        "none",
        "continue the previous chunk, see latency.md: rate at which its actions become free",
    ),
    Setting::new(
        "cuda_graphs",
        ValueKind::Flag,
        "true",
        "whether a GPU replays captured passes",
    ),
];

/// The settings that concern the environment more than the checkpoint.
pub(super) const IN_BOTH: &[Setting] = &[
    Setting::new(
        YAML,
        ValueKind::Path(PathTo::File),
        "none",
        "Arena's YAML file with the same settings; the job takes precedence",
    ),
    Setting::new(
        "action_horizon",
        COUNT,
        "all steps of the embodiment",
        "number of usable actions in a chunk",
    ),
    Setting::new(
        "action_chunk_length",
        COUNT,
        "action_horizon",
        "number of actions to execute",
    ),
    Setting::new(
        "language_instruction",
        ValueKind::Text,
        "none",
        "used if neither job nor environment has an instruction",
    ),
    Setting::new(
        "pov_cam_name_sim",
        ValueKind::Texts,
        "cameras by name",
        "the environment's cameras in the order of the checkpoint's views",
    ),
    joints("policy_joints_config_path", "joints of each group"),
    joints(
        "state_joints_config_path",
        "index of each joint in the state",
    ),
    joints(
        "action_joints_config_path",
        "index of each joint in the action",
    ),
    Setting::new(
        "seed",
        ValueKind::Seed,
        "10",
        "part of the seed of the initial noise",
    ),
];

const fn joints(name: &'static str, about: &'static str) -> Setting {
    Setting::new(name, ValueKind::Path(PathTo::File), "none", about)
}

/// Fields of Arena's files that have no effect here.
pub(super) const UNUSED: &[Setting] = &[
    Setting::unused(
        "modality_config_path",
        "the checkpoint has its own modalities",
    ),
    Setting::unused("original_image_size", "sizes are taken from the images"),
    Setting::unused("target_image_size", "sizes are taken from the checkpoint"),
    Setting::unused("task_mode_name", "joints are named instead"),
    Setting::unused("video_backend", "videos are not read from files"),
];
