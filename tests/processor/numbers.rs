//! Tests of states and actions in every mode.

use std::collections::BTreeMap;

use models::gr00t::processor::{ProcessorConfig, StateActionCodec, StateSteps};
use tch::Tensor;

use crate::processor::files::{below, cases_with, difference, floats, json, tensors};

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
            let raw = below(&inputs, &format!("sa.{name}.state."));
            let predicted = &inputs[&format!("sa.{name}.action_normalized")];
            for sample in 0..predicted.size()[0] {
                let of_sample = |(key, all): &(_, &Tensor)| {
                    let (_, _, width) = all.size3().unwrap();
                    (*key, width as usize, floats(&all.get(sample)))
                };
                let raw: Vec<_> = raw.iter().map(of_sample).collect();
                let state: BTreeMap<&str, StateSteps> = raw
                    .iter()
                    .map(|(key, width, values)| (*key, StateSteps::new(*width, values).unwrap()))
                    .collect();
                let wanted = expected[&format!("sa.{name}.state")].get(sample);
                let found = numbers.encode(&state).unwrap();
                assert_eq!(found, floats(&wanted), "{name} {sample}");

                let predicted = floats(&predicted.get(sample));
                let actions = numbers.decode(&predicted, &state).unwrap();
                assert_eq!(
                    actions.len(),
                    entry["action_keys"].as_array().unwrap().len()
                );
                for action in actions {
                    let all = &expected[&format!("sa.{name}.action.{}", action.key)];
                    let shape = [numbers.action_horizon(), action.width];
                    assert_eq!(all.size()[1..], shape.map(|edge| edge as i64));
                    let apart = difference(&action.values, &floats(&all.get(sample)));
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
