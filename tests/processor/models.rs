//! Tests of whole observations of the model cases: inputs of the network and decoded actions.

use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use gr00t::inputs::BatchInputs;
use gr00t::model::{Gr00t, NoTap, Normalise, PassInputs, Robot, SamplerOptions};
use gr00t::processor::{PreparedRow, Processor, RgbPicture, RowInputs, StateSteps, collate};
use gr00t::{ModelDir, Weights};
use safetensors::Dtype;
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::processor::files::{Stored, below, cases_with, difference, json, tensors};

/// One sample of a case, as in its files.
struct Case<'a> {
    tag: &'a str,
    text: &'a str,
    /// View; steps, height and width; bytes.
    video: Vec<(&'a str, [usize; 3], &'a [u8])>,
    /// Key, width, values.
    state: Vec<(&'a str, usize, Vec<f32>)>,
}

impl<'a> Case<'a> {
    /// Returns all samples: `raw.<sample>.…` without a batch, or `obs.…` with one.
    fn all(case: &'a Value, inputs: &'a BTreeMap<String, Stored>) -> Vec<Self> {
        let texts = case["texts_raw"].as_array().unwrap();
        let tags = case.get("embodiment_tags").and_then(Value::as_array);
        let tag = |index: usize| {
            tags.map_or_else(
                || case["embodiment_tag"].as_str(),
                |tags| tags[index].as_str(),
            )
        };
        let sample = |(index, text): (usize, &'a Value)| {
            let alone = format!("raw.{index}.");
            let batched = below(inputs, &alone).is_empty();
            let prefix = if batched { "obs." } else { &alone };
            let part = |stored: &Stored| {
                if batched {
                    [index, stored.shape[0]]
                } else {
                    [0, 1]
                }
            };
            let mut video = Vec::new();
            for (view, stored) in below(inputs, &format!("{prefix}video.")) {
                let [at, batch] = part(stored);
                let size = stored.bytes().len() / batch;
                let [steps, height, width, 3] = stored.shape[stored.shape.len() - 4..] else {
                    panic!("{view}")
                };
                video.push((
                    view,
                    [steps, height, width],
                    &stored.bytes()[at * size..][..size],
                ));
            }
            let mut state = Vec::new();
            for (key, stored) in below(inputs, &format!("{prefix}state.")) {
                let [at, batch] = part(stored);
                let size = stored.floats().len() / batch;
                state.push((
                    key,
                    *stored.shape.last().unwrap(),
                    stored.floats()[at * size..][..size].to_vec(),
                ));
            }
            Self {
                tag: tag(index).unwrap(),
                text: text.as_str().unwrap(),
                video,
                state,
            }
        };
        texts.iter().enumerate().map(sample).collect()
    }

    fn raw(&self) -> RowInputs<'_> {
        let frames = |(view, [_, height, width], bytes): &(&'a str, [usize; 3], &'a [u8])| {
            let frames = bytes.chunks_exact(height * width * 3);
            (
                *view,
                frames
                    .map(|frame| RgbPicture::new(*height, *width, frame).unwrap())
                    .collect(),
            )
        };
        RowInputs {
            video: self.video.iter().map(frames).collect(),
            state: self
                .state
                .iter()
                .map(|(key, width, values)| (*key, StateSteps::new(*width, values).unwrap()))
                .collect(),
            instruction: self.text,
        }
    }
}

fn floats(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.to_kind(Kind::Float).contiguous().view(-1)).unwrap()
}

fn integers(tensor: &Tensor) -> Vec<i64> {
    Vec::try_from(tensor.contiguous().view(-1)).unwrap()
}

fn assert_equal(name: &str, found: &Tensor, wanted: &Stored) {
    let shape: Vec<usize> = found.size().iter().map(|edge| *edge as usize).collect();
    assert_eq!(shape, wanted.shape, "{name}");
    match wanted.dtype {
        Dtype::I64 => assert!(integers(found) == wanted.integers(), "{name}"),
        Dtype::BF16 => {
            let wanted: Vec<f32> = wanted
                .halves()
                .iter()
                .map(|bits| f32::from_bits(u32::from(*bits) << 16))
                .collect();
            assert!(floats(&found.to_kind(Kind::BFloat16)) == wanted, "{name}");
        }
        _ => assert!(floats(found) == wanted.floats(), "{name}"),
    }
}

fn assert_inputs(found: &BatchInputs, wanted: &BTreeMap<String, Stored>) {
    assert_equal("input_ids", &found.input_ids, &wanted["model.input_ids"]);
    assert_equal(
        "attention_mask",
        &found.attention_mask,
        &wanted["model.attention_mask"],
    );
    assert_equal(
        "pixel_values",
        &found.pixel_values,
        &wanted["model.pixel_values"],
    );
    assert_equal("state", &found.state, &wanted["model.state"]);
    assert_equal(
        "embodiment_id",
        &found.embodiment_id,
        &wanted["model.embodiment_id"],
    );
    assert_eq!(
        found.image_grid_thw.concat(),
        wanted["model.image_grid_thw"].integers()
    );
}

/// Returns a processor for the embodiment of each sample, as [`Processor::prepare`] uses it.
fn processors(dir: &Path, cases: &[Case]) -> Vec<Processor> {
    cases
        .iter()
        .map(|case| Processor::open(dir, None, case.tag).unwrap())
        .collect()
}

#[test]
fn inputs_of_the_network_are_those_of_the_reference() {
    for dir in cases_with("case.json") {
        let (case, inputs) = (
            json(&dir.join("case.json")),
            tensors(&dir.join("inputs.safetensors")),
        );
        let cases = Case::all(&case, &inputs);
        let processors = processors(&dir, &cases);
        let prepare = |(processor, case): (&Processor, &Case)| {
            processor.prepare(&[case.raw()]).unwrap().remove(0)
        };
        let samples: Vec<PreparedRow> = processors.iter().zip(&cases).map(prepare).collect();
        let batch = collate(
            &samples.iter().collect::<Vec<_>>(),
            processors[0].prompts().padding_id(),
        )
        .unwrap();
        assert_inputs(&batch, &inputs);
    }
}

#[test]
fn raw_observations_become_the_references_actions() {
    let _no_grad = tch::no_grad_guard();
    for dir in cases_with("case.json") {
        let (case, inputs) = (
            json(&dir.join("case.json")),
            tensors(&dir.join("inputs.safetensors")),
        );
        let expected = tensors(&dir.join("expected.safetensors"));
        let cases = Case::all(&case, &inputs);
        let processors = processors(&dir, &cases);
        let prepare = |(processor, case): (&Processor, &Case)| {
            processor.prepare(&[case.raw()]).unwrap().remove(0)
        };
        let samples: Vec<PreparedRow> = processors.iter().zip(&cases).map(prepare).collect();
        let batch = collate(
            &samples.iter().collect::<Vec<_>>(),
            processors[0].prompts().padding_id(),
        )
        .unwrap();
        let kind = if case["dtype"] == "bfloat16" {
            Kind::BFloat16
        } else {
            Kind::Float
        };
        let noise = Tensor::read_safetensors(dir.join("inputs.safetensors")).unwrap();
        let noise = noise
            .into_iter()
            .find(|(name, _)| name == "noise")
            .unwrap()
            .1;
        let predicted = floats(&infer(&dir, kind, &batch, &noise));
        let size = predicted.len() / cases.len();
        for (index, (processor, case)) in processors.iter().zip(&cases).enumerate() {
            let actions = processor
                .numbers()
                .decode(&predicted[index * size..][..size], &case.raw().state)
                .unwrap();
            for action in actions {
                let wanted = wanted(&expected, index, &action.key, action.values.len());
                let largest = wanted
                    .iter()
                    .fold(0.0f32, |largest, value| largest.max(value.abs()));
                let apart = difference(&action.values, &wanted);
                // CPUs with and without instructions for bfloat16, which has 8 bits, round sums
                // differently.
                let tolerance = if kind == Kind::BFloat16 { 3e-2 } else { 2e-5 };
                assert!(
                    apart <= tolerance * f64::from(largest.max(1.0)),
                    "{} {index} {}: {apart:e}",
                    dir.display(),
                    action.key
                );
            }
        }
    }
}

/// Runs the original network on one batch.
fn infer(dir: &Path, kind: Kind, batch: &BatchInputs, noise: &Tensor) -> Tensor {
    let (config, vlm) = ModelDir::open(dir, None).unwrap().configs().unwrap();
    let mut weights = Weights::open(dir, Device::Cpu, kind).unwrap();
    let network = Gr00t::new(&mut weights, &config, &vlm);
    weights.finish().unwrap();
    let features = network.features(batch, &mut NoTap).unwrap();
    let robot = Robot {
        state: &batch.state,
        embodiment_id: &batch.embodiment_id,
    };
    let options = SamplerOptions {
        steps: config.num_inference_timesteps,
        rtc: None,
    };
    network
        .actions(&features, &robot, noise, &options, &mut NoTap)
        .unwrap()
}

/// Returns the reference's action of one sample.
fn wanted(expected: &BTreeMap<String, Stored>, index: usize, key: &str, len: usize) -> Vec<f32> {
    match expected.get(&format!("action.{index}.{key}")) {
        Some(alone) => alone.floats(),
        None => expected[&format!("action.{key}")].floats()[index * len..][..len].to_vec(),
    }
}

#[test]
fn pixels_that_come_as_bytes_change_no_bit_of_the_actions() {
    let _no_grad = tch::no_grad_guard();
    for dir in cases_with("case.json") {
        let (case, inputs) = (
            json(&dir.join("case.json")),
            tensors(&dir.join("inputs.safetensors")),
        );
        let cases = Case::all(&case, &inputs);
        let noise = Tensor::read_safetensors(dir.join("inputs.safetensors")).unwrap();
        let noise = noise
            .into_iter()
            .find(|(name, _)| name == "noise")
            .unwrap()
            .1;
        let kind = if case["dtype"] == "bfloat16" {
            Kind::BFloat16
        } else {
            Kind::Float
        };
        let passed = |as_bytes: bool| {
            let mut processors = processors(&dir, &cases);
            let normalise = processors
                .iter_mut()
                .filter(|_| as_bytes)
                .map(Processor::give_bytes)
                .last();
            let normalise = normalise
                .map(|scale| Rc::new(Normalise::new(scale.mean, scale.deviation, Device::Cpu)));
            let prepare = |(processor, case): (&Processor, &Case)| {
                processor.prepare(&[case.raw()]).unwrap().remove(0)
            };
            let samples: Vec<PreparedRow> = processors.iter().zip(&cases).map(prepare).collect();
            let batch = collate(
                &samples.iter().collect::<Vec<_>>(),
                processors[0].prompts().padding_id(),
            )
            .unwrap();
            assert_eq!(batch.pixel_values.kind() == Kind::Uint8, as_bytes);
            let (config, vlm) = ModelDir::open(&dir, None).unwrap().configs().unwrap();
            let mut weights = Weights::open(&dir, Device::Cpu, kind).unwrap();
            let network = Gr00t::new(&mut weights, &config, &vlm).fused();
            let constants = network
                .constants(&batch, &noise, 4, normalise.as_ref())
                .unwrap();
            network.pass(&constants, &PassInputs::new(&batch, noise.shallow_clone()))
        };
        assert_eq!(
            floats(&passed(true)),
            floats(&passed(false)),
            "{}",
            dir.display()
        );
    }
}

#[test]
fn pictures_before_patching_are_those_of_the_reference() {
    for dir in cases_with("case.json") {
        let (case, inputs) = (
            json(&dir.join("case.json")),
            tensors(&dir.join("inputs.safetensors")),
        );
        let expected = tensors(&dir.join("expected.safetensors"));
        let cases = Case::all(&case, &inputs);
        for (index, (processor, case)) in processors(&dir, &cases).iter().zip(&cases).enumerate() {
            let Some(wanted) = expected.get(&format!("pre.{index}.images_u8")) else {
                continue;
            };
            let (raw, video) = (case.raw(), &processor.modalities().video);
            let steps =
                (0..video.horizon()).flat_map(|step| video.keys.iter().map(move |key| (step, key)));
            let transform = |(step, key): (usize, &String)| {
                processor
                    .pictures()
                    .transform(raw.video[key.as_str()][step])
            };
            let found: Vec<u8> = steps.flat_map(|at| transform(at).rgb).collect();
            assert!(found == wanted.bytes(), "{} {index}", dir.display());
        }
    }
}

#[test]
fn actions_are_decoded_as_by_the_reference() {
    for dir in cases_with("case.json") {
        let (case, inputs) = (
            json(&dir.join("case.json")),
            tensors(&dir.join("inputs.safetensors")),
        );
        let expected = tensors(&dir.join("expected.safetensors"));
        let cases = Case::all(&case, &inputs);
        let predicted = &expected["action_pred"];
        let values: Vec<f32> = match predicted.dtype {
            Dtype::BF16 => predicted
                .halves()
                .iter()
                .map(|bits| f32::from_bits(u32::from(*bits) << 16))
                .collect(),
            _ => predicted.floats(),
        };
        let size = values.len() / cases.len();
        for (index, (processor, case)) in processors(&dir, &cases).iter().zip(&cases).enumerate() {
            let actions = processor
                .numbers()
                .decode(&values[index * size..][..size], &case.raw().state)
                .unwrap();
            for action in actions {
                let wanted = wanted(&expected, index, &action.key, action.values.len());
                let apart = difference(&action.values, &wanted);
                assert!(
                    apart <= 1e-6,
                    "{} {index} {}: {apart:e}",
                    dir.display(),
                    action.key
                );
            }
        }
    }
}
