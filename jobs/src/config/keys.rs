//! The names that a configuration may have: those that are read, and those of RLinf that are known
//! but unused.
//!
//! They were collected from evaluations/ and examples/embodiment/config/env/ of RLinf a3816b596.

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
    "group_size",
    "environment",
    "env_type",
    "env_args",
    "enable_cameras",
    "seed",
    "video_cfg",
];

/// Names of `env.eval` that only RLinf's own environments use.
pub(super) const EVAL_UNUSED: &[&str] = &[
    "action_clip",
    "action_dim",
    "action_space",
    "assets_path",
    "base_config_name",
    "camera",
    "camera_depths",
    "camera_names",
    "center_crop",
    "chunk",
    "chunk_pause_seconds",
    "condition_frame_length",
    "data_collection",
    "dataset_source",
    "ee_pos_delta_scale",
    "ee_rot_delta_scale",
    "enable_kir",
    "enable_offload",
    "episode_horizon_source",
    "gym_config_path",
    "gym_id",
    "has_offscreen_renderer",
    "has_renderer",
    "headless",
    "ignore_done",
    "image_key",
    "image_size",
    "image_space",
    "init_params",
    "initial_image_path",
    "is_eval",
    "keyboard_intervention_wrapper",
    "keyboard_reward_wrapper",
    "left_gello_port",
    "main_image_key",
    "model_path",
    "no_gripper",
    "num_env_subprocess",
    "num_frames",
    "num_inference_steps",
    "obs_format",
    "obs_mode",
    "observation",
    "omni_config",
    "only_eval",
    "opensora_wm_hf_ckpt_path",
    "override_cfg",
    "policy_setup",
    "policy_wrapper",
    "render",
    "render_camera",
    "reset_gripper_open",
    "reward_coef",
    "reward_mode",
    "reward_model",
    "right_gello_port",
    "rlt_policy_switch",
    "robot_name",
    "rotate_tasks_on_auto_reset",
    "seed_strategy",
    "seeds_path",
    "sim_device",
    "simulator_backend",
    "simulator_type",
    "skip_intermediate_obs_in_chunk",
    "specific_reset_id",
    "split",
    "state_dim",
    "state_key",
    "state_keys",
    "state_space",
    "task_config",
    "task_filter",
    "task_mode",
    "task_name",
    "task_names",
    "task_sampling_strategy",
    "task_soup",
    "task_source",
    "task_suite_name",
    "use_camera_obs",
    "use_custom_reward",
    "use_eval_utils_cfg",
    "use_fixed_reset_state_ids",
    "use_full_state",
    "use_gello",
    "use_gello_joint",
    "use_object_obs",
    "use_ordered_reset_state_ids",
    "use_rel_reward",
    "use_relative_frame",
    "use_spacemouse",
    "use_step_penalty",
    "use_subproc_vector_env",
    "VAE_path",
    "wan_wm_hf_ckpt_path",
    "wm_env_type",
    "world_model_cfg",
    "wrap_obs_mode",
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

/// Names of `rollout` that only RLinf's own backends use.
pub(super) const ROLLOUT_UNUSED: &[&str] = &[
    "backend",
    "collect_prev_infos",
    "collect_transitions",
    "enable_cuda_graph",
    "enable_torch_compile",
    "enforce_eager",
    "generation_backend",
    "gpu_memory_utilization",
    "group_name",
    "recompute_logprobs",
    "return_logprobs",
    "rollout_backend",
    "sampling_params",
    "sglang",
    "unnorm_key",
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

/// Similarity above which a setting is taken for a misspelled one.
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

/// Adds names that only RLinf uses to `unused`, and refuses unknown names with the nearest known
/// one.
pub(super) fn sort_out(
    fields: &FileFields,
    place: &str,
    known: &[&str],
    theirs: &[&str],
    unused: &mut Vec<String>,
) -> Result<(), FieldError> {
    for key in fields.left() {
        if !theirs.contains(&key) {
            return Err(fields.unknown(key, known));
        }
        unused.push(format!("{place}.{key}"));
    }
    Ok(())
}
