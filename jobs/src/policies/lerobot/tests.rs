use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// Returns a checkpoint with these inputs, each with a type and a shape.
fn checkpoint(config: Value) -> Result<LerobotCheckpoint, String> {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &config.to_string());
    let read = LerobotCheckpoint::read(folder.path());
    read.map_err(|err| {
        let text = err.to_string();
        text.replace(&folder.path().display().to_string(), "FOLDER")
    })
}

fn write(folder: &Path, config: &str) {
    std::fs::write(folder.join("config.json"), config).unwrap();
    std::fs::write(folder.join("policy_preprocessor.json"), "{}").unwrap();
    std::fs::write(folder.join("policy_postprocessor.json"), "{}").unwrap();
}

fn with_inputs(inputs: &[(&str, &str, Value)]) -> LerobotCheckpoint {
    let entry = |(name, kind, shape): &(&str, &str, Value)| {
        ((*name).to_owned(), json!({"type": kind, "shape": shape}))
    };
    let features: serde_json::Map<String, Value> = inputs.iter().map(entry).collect();
    checkpoint(json!({"type": "act", "input_features": features, "max_state_dim": 32})).unwrap()
}

/// Returns what fills each input of a checkpoint, or why that is refused. Of the lines given, the
/// first one is the setting `mapping`; then follow inputs and cameras, or the length of
/// `observation.state` and states, as `a/3` with their lengths.
fn mapped(given: &str) -> String {
    let mut lines = given.lines();
    let mapping: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
    let mapping = match FeatureMapping::read(mapping.as_object().unwrap()) {
        Ok(mapping) => mapping,
        Err(refusal) => return refusal.to_string(),
    };
    let mut words = |of: &str| {
        let line = lines.next().and_then(|line| line.strip_prefix(of));
        let words = line.map(|line| line.split_whitespace().collect::<Vec<_>>());
        words.unwrap_or_else(|| panic!("`{of}` is missing in {given}"))
    };
    let found = if given.contains("\ncameras") {
        let inputs = words("inputs").into_iter();
        let inputs: Vec<_> = inputs
            .map(|name| (name, "VISUAL", json!([3, 96, 96])))
            .collect();
        let of = |(input, camera): (String, Option<String>)| {
            format!("{input}={}", camera.as_deref().unwrap_or("-"))
        };
        let mapped = mapping.cameras(&with_inputs(&inputs), "push", &words("cameras"));
        mapped.map(|mapped| mapped.into_iter().map(of).collect::<Vec<_>>())
    } else {
        let length: usize = words("length")[0].parse().unwrap();
        let checkpoint = with_inputs(&[("observation.state", "STATE", json!([length]))]);
        let states: Vec<_> = words("states").iter().map(|state| named(state)).collect();
        let mapped = mapping.states(&checkpoint, "push", &states);
        mapped.map(|mapped| mapped[0].1.clone())
    };
    found.map_or_else(|err| err.to_string(), |mapped| mapped.join(" "))
}

fn named(state: &str) -> (String, usize) {
    let (name, length) = state.split_once('/').unwrap();
    (name.to_owned(), length.parse().unwrap())
}

#[test]
fn cameras_and_states_are_found_by_name_or_as_the_job_says() {
    rig::cases::check("src/policies/lerobot/mapping.txt", mapped);
}

#[test]
fn a_chunk_is_as_long_as_the_policy_can_make_it() {
    let longest = |config: Value| checkpoint(config).unwrap().longest_chunk();
    let found = longest(json!({"type": "act", "chunk_size": 100}));
    assert_eq!(found, Some(100));
    let ensemble = json!({"type": "act", "chunk_size": 100, "temporal_ensemble_coeff": 0.01});
    assert_eq!(longest(ensemble), Some(1));
    let diffusion = json!({"type": "diffusion", "horizon": 16, "n_obs_steps": 2});
    assert_eq!(longest(diffusion), Some(15));
    assert_eq!(longest(json!({"type": "of_a_plugin"})), None);
}

#[test]
fn a_checkpoint_that_cannot_be_evaluated_is_refused_with_its_file() {
    rig::cases::check("src/policies/lerobot/checkpoints.txt", |given| {
        checkpoint(serde_json::from_str(given).unwrap()).unwrap_err()
    });
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), r#"{"type": "act"}"#);
    std::fs::remove_file(folder.path().join("policy_postprocessor.json")).unwrap();
    let found = LerobotCheckpoint::read(folder.path())
        .unwrap_err()
        .to_string();
    let told = "policy_postprocessor.json`: there is no such file";
    assert!(found.contains(told), "{found}");
    assert!(found.contains("migrate_policy_normalization"), "{found}");
}
