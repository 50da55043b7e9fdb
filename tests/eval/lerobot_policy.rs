//! Tests of jobs with a LeRobot checkpoint, and `tests/fixtures/lerobot` in the place of LeRobot.
//! `tests/fidelity/test_lerobot.py` compares with LeRobot itself.

use std::path::Path;

use serde_json::{Value, json};

use crate::eval::command::Eval;
use crate::eval::given::root;

/// Writes a checkpoint that looks three steps back at its camera, and draws noise.
fn checkpoint(folder: &Path) {
    let config = json!({
        "type": "diffusion", "n_obs_steps": 3, "n_action_steps": 3,
        "input_features": {
            "observation.images.front": {"type": "VISUAL", "shape": [3, 32, 32]},
            "observation.state": {"type": "STATE", "shape": [3]},
        },
        "output_features": {"action": {"type": "ACTION", "shape": [7]}},
    });
    let steps = json!({"steps": [{"registry_name": "device_processor", "config": {}}]});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("policy_preprocessor.json"), steps.to_string()).unwrap();
    std::fs::write(folder.join("policy_postprocessor.json"), "{}").unwrap();
}

fn reach(checkpoint: &Path, num_envs: u64) -> Value {
    let mapping = json!({"states": {"observation.state": "eef_position"}});
    json!({
        "name": "reach",
        "arena_env_args": {
            "environment": "reach", "num_envs": num_envs, "enable_cameras": true,
            "camera_height": 32, "camera_width": 32, "max_episode_steps": 20,
        },
        "policy_type": "lerobot",
        "policy_config_dict": {
            "model_path": checkpoint, "python": root().join(".venv"), "mapping": mapping,
            "env": {"PYTHONPATH": root().join("tests/fixtures/lerobot")},
        },
        "num_episodes": 5,
    })
}

#[test]
fn a_checkpoint_of_lerobot_has_the_same_results_wherever_it_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path());
    let eval = |num_envs, ranks| {
        Eval::new(&[reach(folder.path(), num_envs)])
            .nproc(ranks)
            .words(&["--shard", "episodes"])
    };
    let (alone, together) = (eval(1, 1).finished(), eval(3, 2).finished());
    assert_eq!(together.outcomes(), alone.outcomes());
    assert_eq!(alone.report().overall.errors, 0);
    assert!(alone.policy_files().bytes > 0);
}
