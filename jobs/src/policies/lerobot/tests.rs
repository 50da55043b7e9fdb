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

fn with_cameras(names: &[&str]) -> LerobotCheckpoint {
    let inputs: Vec<_> = names
        .iter()
        .map(|name| (*name, "VISUAL", json!([3, 96, 96])))
        .collect();
    with_inputs(&inputs)
}

fn mapping(value: Value) -> FeatureMapping {
    FeatureMapping::read(value.as_object().unwrap()).unwrap()
}

/// Returns the cameras of the inputs as text, or the error.
fn cameras(mapping: &FeatureMapping, inputs: &[&str], cameras: &[&str]) -> String {
    match mapping.cameras(&with_cameras(inputs), "push", cameras) {
        Ok(mapped) => mapped
            .iter()
            .map(|one| format!("{}={}", one.feature, one.camera.as_deref().unwrap_or("-")))
            .collect::<Vec<_>>()
            .join(" "),
        Err(err) => err.to_string(),
    }
}

#[test]
fn cameras_are_found_by_name_or_if_there_is_only_one() {
    let by_name = FeatureMapping::default();
    let (front, wrist) = ("observation.images.front", "observation.images.wrist");
    assert_eq!(
        cameras(&by_name, &[front, wrist], &["wrist", "front"]),
        "observation.images.front=front observation.images.wrist=wrist"
    );
    assert_eq!(
        cameras(&by_name, &["observation.image"], &["top"]),
        "observation.image=top"
    );
    assert_eq!(
        cameras(
            &by_name,
            &[front, "observation.images.empty_camera_0"],
            &["top"]
        ),
        "observation.images.empty_camera_0=- observation.images.front=top"
    );
    assert_eq!(
        cameras(
            &by_name,
            &["observation.images.left", wrist],
            &["wrist", "front"]
        ),
        "`policy_config_dict.mapping.cameras` is without `observation.images.left`, expected the \
         camera for each; environment `push` has wrist, front"
    );
    assert_eq!(
        cameras(&by_name, &[front], &[]),
        "`policy_config_dict.mapping.cameras` is without `observation.images.front`, expected the \
         camera for each; environment `push` has none"
    );
}

#[test]
fn a_job_says_which_camera_an_input_gets() {
    let left = "observation.images.left";
    let given = mapping(json!({"cameras": {left: "front", "observation.images.wrist": null}}));
    assert_eq!(
        cameras(
            &given,
            &[left, "observation.images.wrist"],
            &["front", "wrist"]
        ),
        "observation.images.left=front observation.images.wrist=-"
    );
    assert_eq!(
        cameras(&given, &[left], &["front"]),
        "`policy_config_dict.mapping.cameras` is for `observation.images.wrist`, expected an input \
         of the checkpoint: observation.images.left"
    );
    let unknown = mapping(json!({"cameras": {left: "side"}}));
    assert_eq!(
        cameras(&unknown, &[left], &["front"]),
        "`policy_config_dict.mapping.cameras.observation.images.left` is `side`, but environment \
         `push` has front"
    );
}

/// Returns the states of `observation.state` with a length as text, or the error.
fn states(mapping: &FeatureMapping, length: usize, states: &[(&str, usize)]) -> String {
    let checkpoint = with_inputs(&[("observation.state", "STATE", json!([length]))]);
    let states: Vec<_> = states
        .iter()
        .map(|(name, length)| ((*name).to_owned(), *length))
        .collect();
    match mapping.states(&checkpoint, "push", &states) {
        Ok(mapped) => mapped[0].states.join("+"),
        Err(err) => err.to_string(),
    }
}

#[test]
fn states_are_found_by_name_or_joined_as_the_job_says() {
    let by_name = FeatureMapping::default();
    assert_eq!(
        states(&by_name, 2, &[("goal", 2), ("agent_pos", 2)]),
        "agent_pos"
    );
    assert_eq!(states(&by_name, 2, &[("goal", 2), ("state", 2)]), "state");
    assert_eq!(states(&by_name, 2, &[("anything", 2)]), "anything");
    let joined = mapping(json!({"states": {"observation.state": ["a", "b"]}}));
    assert_eq!(states(&joined, 5, &[("b", 3), ("a", 2)]), "a+b");
    assert_eq!(
        states(&joined, 6, &[("b", 3), ("a", 2)]),
        "`policy_config_dict.mapping.states.observation.state` is a, b with 5 values, expected 6, \
         as the checkpoint reads"
    );
    assert_eq!(
        states(&joined, 32, &[("b", 3), ("a", 2)]),
        "a+b",
        "pi0.5 may say only the length to which it pads"
    );
    assert_eq!(
        states(&by_name, 2, &[("a", 2), ("b", 2)]),
        "`policy_config_dict.mapping.states` is without `observation.state`, expected the state \
         for each; environment `push` has a (2), b (2)"
    );
}

#[test]
fn a_mapping_of_another_form_is_refused() {
    let table = [
        (
            json!({"camera": {}}),
            "`policy_config_dict.mapping.camera` is {}, expected `cameras` or `states`",
        ),
        (
            json!({"cameras": ["front"]}),
            "`policy_config_dict.mapping.cameras` is [\"front\"], expected an object",
        ),
        (
            json!({"cameras": {"observation.image": 1}}),
            "`policy_config_dict.mapping.cameras.observation.image` is 1, expected the name of a \
             camera, or null to leave the input out",
        ),
        (
            json!({"states": {"observation.state": []}}),
            "`policy_config_dict.mapping.states.observation.state` is [], expected the name of a \
             state, or a list of names to be joined",
        ),
    ];
    for (value, reason) in table {
        let found = FeatureMapping::read(value.as_object().unwrap()).unwrap_err();
        assert_eq!(found.to_string(), reason);
    }
}

#[test]
fn a_chunk_is_as_long_as_the_policy_can_make_it() {
    let longest = |config: Value| checkpoint(config).unwrap().longest_chunk;
    assert_eq!(
        longest(json!({"type": "act", "chunk_size": 100})),
        Some(100)
    );
    let ensemble = json!({"type": "act", "chunk_size": 100, "temporal_ensemble_coeff": 0.01});
    assert_eq!(longest(ensemble), Some(1));
    let diffusion = json!({"type": "diffusion", "horizon": 16, "n_obs_steps": 2});
    assert_eq!(longest(diffusion), Some(15));
    assert_eq!(longest(json!({"type": "of_a_plugin"})), None);
}

#[test]
fn a_checkpoint_that_cannot_be_evaluated_is_refused_with_its_file() {
    let table = [
        (
            json!({"model_type": "llama"}),
            "`FOLDER/config.json`: this is no configuration of a LeRobot policy: missing field \
             `type`",
        ),
        (
            json!({"type": "act", "input_features": {"observation.state": 3}}),
            "`FOLDER/config.json`: feature `observation.state` has no type and shape: ",
        ),
        (
            json!({"type": "tdmpc"}),
            "`FOLDER/config.json`: a chunk of `tdmpc` depends on its last plan, ",
        ),
        (
            json!({"type": "pi05", "use_peft": true}),
            "`FOLDER/config.json`: it is an adapter (`use_peft`): merge it ",
        ),
    ];
    for (config, reason) in table {
        let found = checkpoint(config).unwrap_err();
        assert!(found.starts_with(reason), "{found}");
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), r#"{"type": "act"}"#);
    std::fs::remove_file(folder.path().join("policy_postprocessor.json")).unwrap();
    let found = LerobotCheckpoint::read(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        found.contains("policy_postprocessor.json`: there is no such file"),
        "{found}"
    );
    assert!(found.contains("migrate_policy_normalization"), "{found}");
}
