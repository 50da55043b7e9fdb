//! Tests of states and actions in every mode.

use std::collections::BTreeMap;

use models::gr00t::processor::{ProcessorConfig, StateActionCodec, StateSteps};

use crate::processor::files::{below, cases_with, difference, json, tensors};

/// The reference orthogonalises the reference pose in `f32`; everything else is exact.
const TOLERANCE: f64 = 1e-6;

#[test]
fn states_are_equal_and_actions_within_the_tolerance() {
    for case in cases_with("cases.json") {
        let (inputs, expected) = (
            tensors(&case.join("inputs.safetensors")),
            tensors(&case.join("expected.safetensors")),
        );
        for entry in json(&case.join("cases.json"))["state_action"]
            .as_array()
            .unwrap()
        {
            let name = entry["variant"].as_str().unwrap();
            let dir = case.join("variants").join(name);
            let config = ProcessorConfig::read(&dir.join("processor_config.json")).unwrap();
            let numbers =
                StateActionCodec::read(&dir.join("statistics.json"), &config, config.tags()[0])
                    .unwrap();
            let raw: Vec<_> = below(&inputs, &format!("sa.{name}.state."))
                .into_iter()
                .map(|(key, stored)| (key, stored.shape.clone(), stored.floats()))
                .collect();
            let predicted = &inputs[&format!("sa.{name}.action_normalized")];
            let predictions = predicted.floats();
            let wanted = expected[&format!("sa.{name}.state")].floats();
            let batch = predicted.shape[0];
            for sample in 0..batch {
                let state: BTreeMap<&str, StateSteps> = raw
                    .iter()
                    .map(|(key, shape, values)| {
                        let size = shape[1] * shape[2];
                        (
                            *key,
                            StateSteps::new(shape[2], &values[sample * size..][..size]).unwrap(),
                        )
                    })
                    .collect();
                let size = wanted.len() / batch;
                assert_eq!(
                    numbers.encode(&state).unwrap(),
                    wanted[sample * size..][..size],
                    "{name} {sample}"
                );

                let size = predictions.len() / batch;
                let actions = numbers
                    .decode(&predictions[sample * size..][..size], &state)
                    .unwrap();
                assert_eq!(
                    actions.len(),
                    entry["action_keys"].as_array().unwrap().len()
                );
                for action in actions {
                    let stored = &expected[&format!("sa.{name}.action.{}", action.key)];
                    assert_eq!(stored.shape[1..], [numbers.action_horizon(), action.width]);
                    let size = action.values.len();
                    let apart =
                        difference(&action.values, &stored.floats()[sample * size..][..size]);
                    assert!(
                        apart <= TOLERANCE,
                        "{name} {sample} {}: {apart:e}",
                        action.key
                    );
                }
            }
        }
    }
}
