//! Collates samples into one batch.

use jobs::refusal::Refusal;
use tch::Tensor;

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
    let wanted = shape(first);
    let mut shapes = samples.iter().map(|row| shape(row));
    if let Some(found) = shapes.find(|found| *found != wanted) {
        let wanted = format!("expected {wanted:?} as in the first sample");
        let what = "the state of a sample, (steps, values),";
        return Err(input(what, format!("{found:?}"), wanted));
    }
    let lengths = samples.iter().map(|sample| sample.ids.len());
    let (batch, longest) = (samples.len(), lengths.max().unwrap_or_default());
    let mut ids = vec![padding_id; batch * longest];
    let mut mask = vec![0i64; batch * longest];
    let mut state = Vec::with_capacity(batch * first.state.len());
    for (row, sample) in samples.iter().enumerate() {
        let text = (row + 1) * longest - sample.ids.len()..(row + 1) * longest;
        ids[text.clone()].copy_from_slice(&sample.ids);
        mask[text].fill(1);
        state.extend_from_slice(&sample.state);
    }
    let pixels: Vec<&Tensor> = samples.iter().map(|sample| &sample.pixels).collect();
    let grids = samples.iter().flat_map(|sample| &sample.grids);
    let (batch, longest) = (length(batch), length(longest));
    Ok(BatchInputs {
        input_ids: Tensor::from_slice(&ids).view([batch, longest]),
        attention_mask: Tensor::from_slice(&mask).view([batch, longest]),
        pixel_values: match pixels[..] {
            [only] => only.shallow_clone(),
            _ => Tensor::cat(&pixels, 0),
        },
        image_grid_thw: grids.copied().collect(),
        state: Tensor::from_slice(&state).view([batch, length(first.state_steps), -1]),
        embodiment_id: first.embodiment_id,
    })
}

fn shape(sample: &PreparedRow) -> (usize, usize) {
    (sample.state_steps, sample.state.len())
}

fn length(count: usize) -> i64 {
    i64::try_from(count).expect("a slice is shorter than i64::MAX")
}
