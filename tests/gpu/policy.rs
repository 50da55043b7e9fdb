//! Tests of a whole inference, from images to physical actions, on a GPU and on the CPU.

use models::gr00t::model::SamplerStart;
use models::gr00t::processor::{RgbPicture, RowInputs, StateSteps};
use runtime::policy::gr00t::inference::{Gr00tInference, open_processor};
use runtime::policy::gr00t::read;
use runtime::policy::{Checkpoints, Lifeline};
use serde_json::json;
use tch::Device;

use crate::gpu::card::{card, demo_policy, device};

/// Height and width of the images in pixels.
const EDGE: usize = 96;
/// Number of environments that are inferred together.
const ROWS: usize = 3;

/// Returns the actions of all rows, concatenated, in the embodiment's units.
fn actions(device: Device, dtype: &str) -> Vec<f32> {
    let config = json!({"model_path": demo_policy(), "dtype": dtype});
    let settings = read(config.as_object().unwrap()).unwrap();
    let processor = open_processor(&settings).unwrap();
    let inference = Gr00tInference::load(
        &settings,
        processor,
        &mut Checkpoints::new(device, Lifeline::alone()),
    )
    .unwrap();
    let pictures: Vec<Vec<u8>> = (0..ROWS).map(picture).collect();
    let widths = inference.processor.numbers.state_keys();
    let states: Vec<(&str, Vec<f32>)> = widths
        .into_iter()
        .map(|(key, width)| (key, vec![0.1; width.unwrap_or(1)]))
        .collect();
    let views = &inference.processor.modalities.video.keys;
    let raws: Vec<_> = pictures
        .iter()
        .map(|pixels| Ok(raw(pixels, views, &states)))
        .collect();
    let start = |row| SamplerStart::at(inference.noise(row));
    let starts: Vec<_> = (0..ROWS as u64).map(start).collect();
    let answers = inference.infer(raws, &starts).unwrap();
    answers
        .into_iter()
        .flat_map(|row| row.unwrap().actions.into_iter().flat_map(|key| key.values))
        .collect()
}

fn raw<'a>(
    pixels: &'a [u8],
    views: &'a [String],
    states: &'a [(&'a str, Vec<f32>)],
) -> RowInputs<'a> {
    let picture = || RgbPicture::new(EDGE, EDGE, pixels).unwrap();
    RowInputs {
        video: views
            .iter()
            .map(|view| (view.as_str(), vec![picture()]))
            .collect(),
        state: states
            .iter()
            .map(|(key, values)| (*key, StateSteps::new(values.len(), values).unwrap()))
            .collect(),
        instruction: "reach the target",
    }
}

/// Returns an image of a disc on a gradient, at another place for every row.
fn picture(row: usize) -> Vec<u8> {
    let centre = 20 + 25 * row;
    let pixel = |at: usize| {
        let (y, x) = (at / EDGE, at % EDGE);
        let inside = y.abs_diff(48).pow(2) + x.abs_diff(centre).pow(2) < 100;
        if inside {
            [255, 30, 30]
        } else {
            [x as u8, y as u8, 90]
        }
    };
    (0..EDGE * EDGE).flat_map(pixel).collect()
}

/// Returns the largest difference as a fraction of the largest action.
fn apart(found: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(found.len(), expected.len());
    let largest = expected
        .iter()
        .fold(0.0f32, |most, value| most.max(value.abs()));
    let differences = found
        .iter()
        .zip(expected)
        .map(|(found, expected)| (found - expected).abs());
    differences.fold(0.0, f32::max) / largest
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_actions_are_those_of_the_cpu() {
    let device = device();
    let expected = actions(Device::Cpu, "float32");
    assert!(
        expected.iter().any(|value| value.abs() > 1e-3),
        "all actions are nearly 0"
    );
    let float32 = apart(&actions(device, "float32"), &expected);
    let bfloat16 = apart(&actions(device, "bfloat16"), &expected);
    println!(
        "largest difference of the largest action: float32 {float32:.1e}, bfloat16 {bfloat16:.1e}"
    );
    assert!(float32 <= 1e-3, "float32: {float32}");
    assert!(bfloat16 <= 0.1, "bfloat16: {bfloat16}");
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_memory_of_a_checkpoint_is_given_back() {
    let Some(card) = card() else { return };
    let _ = actions(card.device(), "bfloat16");
    let before = card.cuda.memory(card.index).unwrap().allocated_bytes;
    let _ = actions(card.device(), "bfloat16");
    let after = card.cuda.memory(card.index).unwrap().allocated_bytes;
    assert!(after <= before + (1 << 20), "{before} bytes, then {after}");
}
