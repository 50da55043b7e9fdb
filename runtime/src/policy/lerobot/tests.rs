//! Tests with a stand-in for LeRobot, `tests/fixtures/lerobot`, in the project's interpreter.
//! `tests/fidelity/test_lerobot.py` compares with LeRobot itself.

use std::path::Path;

use rig::root;
use tch::Device;

use super::*;
use crate::env::Observation;
use crate::policy::python::PythonPolicy;
use crate::policy::tests::{env_spec, env_with, frame, row};
use crate::policy::{Lifeline, Policy, PolicyRow, RowAnswer};

/// Returns an environment with two cameras of 4 × 6 pixels.
fn env() -> EnvSpec {
    let mut env = env_with(&["front", "wrist"], [4, 6]);
    env.language = "go".to_owned();
    env
}

/// Writes a checkpoint for the cameras `front` and `wrist` and a state of 4 numbers.
fn checkpoint(folder: &Path, policy: &str, more: Value) {
    let mut config = json!({
        "type": policy,
        "input_features": {
            "observation.images.front": {"type": "VISUAL", "shape": [3, 4, 6]},
            "observation.images.wrist": {"type": "VISUAL", "shape": [3, 8, 8]},
            "observation.state": {"type": "STATE", "shape": [4]},
        },
        "output_features": {"action": {"type": "ACTION", "shape": [7]}},
    });
    config
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    let steps = json!({"steps": [{"registry_name": "device_processor", "config": {}}]});
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    std::fs::write(folder.join("policy_preprocessor.json"), steps.to_string()).unwrap();
    std::fs::write(folder.join("policy_postprocessor.json"), "{}").unwrap();
}

/// Returns the settings of a job with this checkpoint.
fn settings(folder: &Path, more: Value) -> Map<String, Value> {
    let mut all = json!({
        "model_path": folder, "python": root().join(".venv"),
        "env": {"PYTHONPATH": root().join("tests/fixtures/lerobot")},
        "mapping": {"states": {"observation.state": ["eef_position", "gripper_position"]}},
    });
    let all = all.as_object_mut().unwrap();
    all.extend(more.as_object().unwrap().clone());
    all.clone()
}

fn try_start(config: &Map<String, Value>) -> Result<PythonPolicy, PolicyError> {
    let worker = LerobotSettings::read(config)?.for_env(&env())?;
    PythonPolicy::start(worker, &env(), Device::Cpu, &Lifeline::alone())
}

fn start(policy: &str, config: Value, more: Value) -> PythonPolicy {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), policy, config);
    try_start(&settings(folder.path(), more)).unwrap()
}

fn refusal(config: Value, more: Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path(), "act", config);
    let text = try_start(&settings(folder.path(), more))
        .err()
        .unwrap()
        .to_string();
    text.replace(&folder.path().display().to_string(), "CHECKPOINT")
}

/// Returns an observation with pictures of one level, and states of one number.
fn observation(level: u8, x: f32) -> Observation {
    let video = ["front", "wrist"].map(|name| (name.to_owned(), frame([4, 6], level)));
    let states = env_spec().interface.state.into_iter();
    let states = states.map(|(name, length)| (name, vec![x; length]));
    Observation {
        video: video.into(),
        state: states.collect(),
        language: "push it".into(),
        ..Observation::default()
    }
}

fn seen(env: usize, level: u8, x: f32) -> PolicyRow {
    row(env, observation(level, x))
}

/// Returns a row of an episode with another seed, perhaps not its first.
fn of(row: PolicyRow, seed: u64, inference: u64) -> PolicyRow {
    PolicyRow {
        seed,
        inference,
        ..row
    }
}

fn first(answer: &RowAnswer) -> &[f32] {
    let chunk = answer.chunk().unwrap_or_else(|| panic!("{answer:?}"));
    chunk.action(0).unwrap()
}

#[test]
fn a_checkpoint_sees_lerobots_names_and_units_and_its_processors_are_used() {
    let mut policy = start("act", json!({}), json!({}));
    assert_eq!(policy.facts().horizon, 2, "its n_action_steps");
    assert_eq!(policy.facts().looks_back, 0);
    let facts = policy.facts();
    let note =
        "camera `wrist` has 4 x 6 pixels, and `observation.images.wrist` of the checkpoint 8 x 8";
    assert_eq!(facts.notes, [note]);
    let mut other = observation(255, 0.75);
    other.state.insert("gripper_position".to_owned(), vec![0.5]);
    let rows = [seen(0, 51, 0.25), row(1, other)];
    let chunks = policy.act(&rows).unwrap();
    // The postprocessor adds 1: picture in 0..1, state, letters of `push it`, noise, rows of the call.
    assert_eq!(first(&chunks[0]), [1.2, 1.25, 1.25, 8.0, 1.0, 3.0, 1.0]);
    assert_eq!(first(&chunks[1]), [2.0, 1.75, 1.5, 8.0, 1.0, 3.0, 1.0]);
    let facts: std::collections::BTreeMap<_, _> = facts.reported.into_iter().collect();
    assert_eq!(facts["policy_versions"]["lerobot"], "0.6.1");
    let cameras = json!([
        ["observation.images.front", "front"],
        ["observation.images.wrist", "wrist"]
    ]);
    assert_eq!(facts["policy_kwargs"]["cameras"], cameras);
}

#[test]
fn a_job_can_set_the_task_the_length_of_a_chunk_and_fields_of_the_configuration() {
    let more = json!({"task": "go", "action_chunk_length": 3, "config_overrides": {"scale": 2.0}});
    let mut policy = start("act", json!({}), more);
    assert_eq!(policy.facts().horizon, 3);
    let chunks = policy.act(&[seen(0, 51, 0.25)]).unwrap();
    assert_eq!(first(&chunks[0])[3], 2.0 * 2.0 + 1.0);
}

#[test]
fn a_policy_that_looks_back_sees_every_step_and_the_first_one_repeated() {
    let mut policy = start("diffusion", json!({"n_obs_steps": 3}), json!({}));
    assert_eq!(policy.facts().looks_back, 2);
    let mut ask = |row: &PolicyRow| policy.act(std::slice::from_ref(row)).unwrap().remove(0);
    let mut row = seen(0, 0, 0.25);
    let (at_start, later) = (ask(&row), ask(&seen(1, 0, 0.5)));
    assert_eq!(first(&at_start)[1..3], [1.25, 1.25]);
    assert_eq!(first(&later)[1..3], [1.5, 1.5]);
    for x in [0.375, 0.75, 0.875] {
        row.window.push(observation(0, x).into(), 2);
    }
    let now = ask(&of(row, 0, 1));
    let seen = &first(&now)[1..3];
    assert_eq!(seen, [1.375, 1.875], "two steps back, and now");
}

#[test]
fn noise_follows_from_episode_and_step_and_not_from_the_other_rows() {
    for kind in ["diffusion", "of_a_plugin"] {
        let mut policy = start(kind, json!({}), json!({}));
        let noise = |policy: &mut PythonPolicy, rows: &[PolicyRow]| -> Vec<f32> {
            let chunks = policy.act(rows).unwrap();
            chunks.iter().map(|chunk| first(chunk)[4]).collect()
        };
        let all = [0, 1, 2].map(|env| of(seen(env, 0, 0.5), env as u64 + 5, 0));
        let together = noise(&mut policy, &all);
        let second = noise(
            &mut policy,
            &all.clone().map(|row| of(row.clone(), row.seed, 1)),
        );
        let alone = noise(&mut policy, &[of(all[0].clone(), 6, 0)]);
        assert_eq!(alone[0], together[1], "{kind}");
        assert_ne!(together[0], together[1], "{kind}");
        assert_ne!(second[1], together[1], "{kind}");
    }
}

#[test]
fn what_does_not_fit_is_refused_with_both_sides() {
    rig::cases::check("src/policy/lerobot/refusals.txt", |given| {
        let (config, more) = given.split_once('\n').unwrap();
        let read = |text: &str| serde_json::from_str(text).unwrap();
        let reason = refusal(read(config), read(more));
        // What a checkpoint of LeRobot knows is its own.
        reason
            .split_once("which has chunk_size, ")
            .map_or(reason.clone(), |(told, _)| told.to_owned())
    });
}

#[test]
fn a_lerobot_that_is_too_old_or_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("lerobot")).unwrap();
    let init = folder.path().join("lerobot/__init__.py");
    std::fs::write(init, "__version__ = '0.5.3'").unwrap();
    let found = refusal(json!({}), json!({"env": {"PYTHONPATH": folder.path()}}));
    assert!(
        found.contains("lerobot is 0.5.3, expected 0.6 or newer"),
        "{found}"
    );
    let found = refusal(json!({}), json!({"env": {"PYTHONPATH": null}}));
    assert!(found.contains("No module named 'lerobot'"), "{found}");
}
