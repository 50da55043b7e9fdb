//! Tests of jobs with a LeRobot checkpoint, and `tests/fixtures/lerobot` in the place of LeRobot.
//! `tests/fidelity/test_lerobot.py` compares with LeRobot itself.

use std::path::{Path, PathBuf};

use jobs::episode::EpisodeOutcome;
use jobs::journal::Line;
use serde_json::{Value, json};

use crate::eval::command::Eval;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .canonicalize()
        .unwrap()
}

/// Writes a checkpoint that looks three steps back at the camera of this name, and draws noise.
fn checkpoint(folder: &Path, camera: &str) {
    let picture = format!("observation.images.{camera}");
    let config = json!({
        "type": "diffusion", "n_obs_steps": 3, "n_action_steps": 3,
        "input_features": {
            picture: {"type": "VISUAL", "shape": [3, 32, 32]},
            "observation.state": {"type": "STATE", "shape": [3]},
        },
        "output_features": {"action": {"type": "ACTION", "shape": [7]}},
    });
    let steps = json!({"steps": [{"registry_name": "device_processor", "config": {}}]});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("policy_preprocessor.json"), steps.to_string()).unwrap();
    std::fs::write(folder.join("policy_postprocessor.json"), "{}").unwrap();
}

fn reach(checkpoint: &Path, num_envs: u64, mapping: Value) -> Value {
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

fn outcomes(eval: &Eval) -> Vec<EpisodeOutcome> {
    let episodes = eval.episodes();
    assert!(
        episodes.iter().all(|episode| episode.error.is_none()),
        "{episodes:?}"
    );
    episodes.iter().map(|episode| episode.outcome()).collect()
}

#[test]
fn a_checkpoint_of_lerobot_has_the_same_results_wherever_it_is_evaluated() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), "front");
    let mapping = json!({"states": {"observation.state": "eef_position"}});
    let eval = |num_envs, ranks| {
        Eval::new(&[reach(folder.path(), num_envs, mapping.clone())])
            .nproc(ranks)
            .words(&["--shard", "episodes"])
    };
    let (alone, together) = (eval(1, 1), eval(3, 2));
    alone.run().succeeds();
    together.run().succeeds();
    assert_eq!(outcomes(&together), outcomes(&alone));
    let files = alone.journal().into_iter().find_map(|line| match line {
        Line::PolicyFiles(files) => Some(files),
        _ => None,
    });
    assert!(
        files.is_some(),
        "the journal has the checksum of the checkpoint"
    );
}

#[test]
fn a_camera_that_is_not_certain_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), "left");
    let eval = Eval::new(&[reach(folder.path(), 1, json!({}))]).nproc(1);
    eval.run().fails_with(1).stderr_has(
        "job 0 (reach): `policy_config_dict.mapping.cameras` is without `observation.images.left`, \
         expected the camera for each; environment `reach` has front, wrist",
    );
    assert!(!eval.folder().root().exists(), "nothing is written");
}

#[test]
fn an_interpreter_without_lerobot_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), "front");
    let mut job = reach(folder.path(), 1, json!({}));
    job["policy_config_dict"]["env"] = json!({});
    let eval = Eval::new(&[job]).nproc(1);
    eval.run()
        .fails_with(1)
        .stderr_has("finds no module `lerobot`; install it there, or name another interpreter as `policy_config_dict.python`");
    assert!(!eval.folder().root().exists(), "nothing is written");
}
