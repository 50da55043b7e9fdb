//! Collates samples into one batch.

use jobs::refusal::Refusal;
use tch::{Kind, Tensor};

use crate::error::input;
use crate::gr00t::inputs::BatchInputs;
use crate::gr00t::processor::row::PreparedRow;

/// Collates samples into one batch; prompts are padded on the left to the longest one with
/// `padding_id`.
///
/// # Errors
/// Returns [`Refusal`] if there is no sample or if the states differ in shape.
pub fn collate(samples: &[&PreparedRow], padding_id: i64) -> Result<BatchInputs, Refusal> {
    let Some(first) = samples.first() else {
        return Err(input("a batch", "empty", "expected at least one sample"));
    };
    if let Some(other) = samples.iter().find(|other| shape(other) != shape(first)) {
        let (found, wanted) = (
            format!("{:?}", shape(other)),
            format!("expected {:?} as in the first sample", shape(first)),
        );
        return Err(input(
            "the state of a sample, (steps, values),",
            found,
            wanted,
        ));
    }
    let longest = samples
        .iter()
        .map(|sample| sample.ids.len())
        .max()
        .unwrap_or_default();
    let mut ids = Vec::with_capacity(samples.len() * longest);
    let mut mask = Vec::with_capacity(samples.len() * longest);
    for sample in samples {
        let missing = longest - sample.ids.len();
        ids.extend(std::iter::repeat_n(padding_id, missing).chain(sample.ids.iter().copied()));
        mask.extend(std::iter::repeat_n(0i64, missing).chain(sample.ids.iter().map(|_| 1)));
    }
    let (batch, longest) = (length(samples.len()), length(longest));
    let state: Vec<f32> = samples
        .iter()
        .flat_map(|sample| sample.state.iter().copied())
        .collect();
    let pixels: Vec<&Tensor> = samples.iter().map(|sample| &sample.pixels).collect();
    Ok(BatchInputs {
        input_ids: Tensor::from_slice(&ids).view([batch, longest]),
        attention_mask: Tensor::from_slice(&mask).view([batch, longest]),
        pixel_values: if let [only] = pixels[..] {
            only.shallow_clone()
        } else {
            Tensor::cat(&pixels, 0)
        },
        image_grid_thw: samples
            .iter()
            .flat_map(|sample| sample.grids.iter().copied())
            .collect(),
        state: Tensor::from_slice(&state)
            .view([batch, length(first.state_steps), -1])
            .to_kind(Kind::Float),
        embodiment_id: first.embodiment_id,
    })
}

fn shape(sample: &PreparedRow) -> (usize, usize) {
    (sample.state_steps, sample.state.len())
}

fn length(count: usize) -> i64 {
    i64::try_from(count).expect("a slice is shorter than i64::MAX")
}
