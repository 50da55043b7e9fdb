//! Tests of whole observations of the model cases: inputs of the network and decoded actions.

use std::rc::Rc;

use models::Weights;
use models::gr00t::model::{Gr00t, Normalise, PassInputs, SamplerStart};
use models::gr00t::processor::{
    PreparedRow, Processor, RgbPicture, RowInputs, StateSteps, collate,
};
use models::gr00t::{BatchInputs, VlmConfig};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::parity::case::{Case, cases};
use crate::processor::files::{Tensors, below, bytes, difference, floats};

/// One sample of a case, as in its files, with a processor for its embodiment.
struct Sample<'a> {
    processor: Processor,
    text: &'a str,
    /// View; height and width; the bytes of all steps.
    video: Vec<(&'a str, [usize; 2], Vec<u8>)>,
    /// Key, width, values.
    state: Vec<(&'a str, usize, Vec<f32>)>,
}

/// Returns all samples: `raw.<sample>.…` without a batch, or `obs.…` with one.
fn samples(case: &Case) -> Vec<Sample<'_>> {
    let texts = case.json["texts_raw"].as_array().unwrap();
    let tag = |index: usize| match &case.json["embodiment_tags"] {
        Value::Null => case.json["embodiment_tag"].as_str().unwrap(),
        tags => tags[index].as_str().unwrap(),
    };
    let sample = |index: usize| {
        let alone = format!("raw.{index}.");
        let batched = below(&case.inputs, &alone).is_empty();
        let prefix = if batched { "obs." } else { &alone };
        let own = |tensor: &Tensor| match batched {
            true => tensor.get(index as i64),
            false => tensor.shallow_clone(),
        };
        let view = |(view, tensor): (_, &Tensor)| {
            let (_, height, width, _) = own(tensor).size4().unwrap();
            (view, [height as usize, width as usize], bytes(&own(tensor)))
        };
        let state = |(key, tensor): (_, &Tensor)| {
            let (_, width) = own(tensor).size2().unwrap();
            (key, width as usize, floats(&own(tensor)))
        };
        let video = below(&case.inputs, &format!("{prefix}video."));
        let states = below(&case.inputs, &format!("{prefix}state."));
        Sample {
            processor: Processor::open(&case.dir, None, tag(index)).unwrap(),
            text: texts[index].as_str().unwrap(),
            video: video.into_iter().map(view).collect(),
            state: states.into_iter().map(state).collect(),
        }
    };
    (0..texts.len()).map(sample).collect()
}

impl Sample<'_> {
    fn raw(&self) -> RowInputs<'_> {
        let picture =
            |[height, width]: [usize; 2], frame| RgbPicture::new(height, width, frame).unwrap();
        let video = self.video.iter().map(|(view, size, bytes)| {
            let frames = bytes.chunks_exact(size[0] * size[1] * 3);
            (*view, frames.map(|frame| picture(*size, frame)).collect())
        });
        let state = self
            .state
            .iter()
            .map(|(key, width, values)| (*key, StateSteps::new(*width, values).unwrap()));
        RowInputs {
            video: video.collect(),
            state: state.collect(),
            instruction: self.text,
        }
    }
}

/// Checks the actions that normalised predictions are decoded to.
fn are_decoded(case: &Case, predicted: &[f32], tolerance: impl Fn(f64) -> f64) {
    let samples = samples(case);
    let size = predicted.len() / samples.len();
    for (index, sample) in samples.iter().enumerate() {
        let predicted = &predicted[index * size..][..size];
        let numbers = &sample.processor.numbers;
        for action in numbers.decode(predicted, &sample.raw().state).unwrap() {
            let wanted = wanted(&case.expected, index, &action.key);
            let largest = wanted
                .iter()
                .fold(0.0f32, |most, value| most.max(value.abs()));
            let apart = difference(&action.values, &wanted);
            assert!(
                apart <= tolerance(f64::from(largest)),
                "{} {index} {}: {apart:e}",
                case.name(),
                action.key
            );
        }
    }
}

/// Returns the reference's action of one sample.
fn wanted(expected: &Tensors, index: usize, key: &str) -> Vec<f32> {
    floats(&match expected.get(&format!("action.{index}.{key}")) {
        Some(alone) => alone.shallow_clone(),
        None => expected[&format!("action.{key}")].get(index as i64),
    })
}

/// Returns the network as policies load it.
fn network(case: &Case) -> Gr00t {
    let vlm = VlmConfig::read(&case.dir.join("vlm/config.json")).unwrap();
    let mut weights = Weights::open(&case.dir, Device::Cpu, case.kind()).unwrap();
    let network = Gr00t::new(&mut weights, &case.config, &vlm);
    weights.finish().unwrap();
    network
}

/// Returns the samples as one batch for the network.
fn batch(samples: &[Sample<'_>]) -> BatchInputs {
    let prepare =
        |sample: &Sample<'_>| sample.processor.prepare(&[sample.raw()]).unwrap().remove(0);
    let rows: Vec<PreparedRow> = samples.iter().map(prepare).collect();
    let padding = samples[0].processor.prompts.padding_id;
    collate(&rows.iter().collect::<Vec<_>>(), padding).unwrap()
}

/// Returns how the pixels of a sample are normalised.
fn normalise(sample: &Sample<'_>) -> Rc<Normalise> {
    let scale = sample.processor.pictures.scale;
    Rc::new(Normalise::new(scale, Device::Cpu))
}

/// The pixels of every picture are compared too: each byte of a picture has a value of its own.
#[test]
fn inputs_of_the_network_are_those_of_the_reference() {
    for case in cases() {
        let samples = samples(&case);
        let found = batch(&samples);
        let pixels = normalise(&samples[0]).apply(&found.pixel_values, Kind::Float);
        let grids: Vec<_> = found
            .image_grid_thw
            .iter()
            .map(|grid| Tensor::from_slice(grid))
            .collect();
        for (name, found) in [
            ("input_ids", &found.input_ids),
            ("attention_mask", &found.attention_mask),
            ("pixel_values", &pixels),
            ("state", &found.state),
            ("image_grid_thw", &Tensor::stack(&grids, 0)),
        ] {
            let wanted = case.input(&format!("model.{name}"));
            assert!(
                found.to_kind(wanted.kind()) == wanted,
                "{} {name}",
                case.name()
            );
        }
        assert_eq!(found.embodiment_id, case.embodiments()[0]);
    }
}

#[test]
fn raw_observations_become_the_references_actions() {
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        let (network, samples) = (network(&case), samples(&case));
        let (mut batch, noise) = (batch(&samples), case.input("noise"));
        let steps = case.config.num_inference_timesteps;
        let mut predicted = Vec::new();
        for (row, sample) in (0..).zip(&samples) {
            batch.embodiment_id = sample.processor.embodiment_id;
            let constants = network.constants(&batch, &noise, steps, Some(&normalise(sample)));
            let inputs = PassInputs::new(&batch, SamplerStart::at(noise.shallow_clone()));
            predicted.push(network.pass(&constants.unwrap(), &inputs).get(row));
        }
        let predicted = Tensor::stack(&predicted, 0);
        // CPUs with and without instructions for bfloat16, which has 8 bits, round sums
        // differently: by up to 4.1 % with AMX.
        let relative = match case.kind() {
            Kind::BFloat16 => 5e-2,
            _ => 2e-5,
        };
        are_decoded(&case, &floats(&predicted), |largest| {
            relative * largest.max(1.0)
        });
    }
}

#[test]
fn actions_are_decoded_as_by_the_reference() {
    for case in cases() {
        are_decoded(&case, &floats(&case.expected["action_pred"]), |_| 1e-6);
    }
}
