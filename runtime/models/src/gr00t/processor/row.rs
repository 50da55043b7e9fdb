//! What the processor reads and writes, for one row, and the batch of several.
//!
//! ```text
//! RowInputs ─► PreparedRow ─► (batch, pass) ─► KeyActions, one for each action key
//! ```

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use jobs::refusal::Refusal;
use tch::Tensor;

use crate::error::input;
use crate::gr00t::inputs::BatchInputs;
use crate::image::RgbPicture;

/// The inputs of one row under the keys of the checkpoint: an observation, as it was seen.
#[derive(Clone, Debug, Default)]
pub struct RowInputs<'a> {
    /// Pictures by video key, one for each step of the modality, oldest first.
    pub video: BTreeMap<&'a str, Vec<RgbPicture<'a>>>,
    /// State vectors by key, one for each step of the modality, oldest first.
    pub state: BTreeMap<&'a str, StateSteps<'a>>,
    /// The task, as text.
    pub instruction: &'a str,
}

/// A state vector at each step of the modality: `[steps, width]`, row-major, oldest step first.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSteps<'a> {
    width: usize,
    values: Cow<'a, [f32]>,
}

impl<'a> StateSteps<'a> {
    /// Creates steps of `width` values each.
    ///
    /// # Errors
    /// Returns [`Refusal`] if `values` does not consist of whole steps, at least one.
    pub fn new(width: usize, values: impl Into<Cow<'a, [f32]>>) -> Result<Self, Refusal> {
        let values = values.into();
        if width == 0 || values.is_empty() || !values.len().is_multiple_of(width) {
            let found = format!("{} values", values.len());
            return Err(input(
                "a state",
                found,
                format!("expected whole rows of {width}"),
            ));
        }
        Ok(Self { width, values })
    }

    /// Returns the number of values in a step.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of steps.
    pub fn steps(&self) -> usize {
        self.values.len() / self.width
    }

    /// Returns the values of each step, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.width)
    }

    /// Returns the values of the newest step.
    pub fn last(&self) -> &[f32] {
        &self.values[self.values.len() - self.width..]
    }
}

/// One observation in the form that the network reads.
#[derive(Debug)]
pub struct PreparedRow {
    /// Token ids of the prompt, without padding.
    pub ids: Arc<[i64]>,
    /// Normalised patches of the pictures, in the order of the prompt: `[p, 1536]`, `f32`; or as
    /// bytes, `[p, 768]`, `u8`.
    pub pixels: Tensor,
    /// Number of patches of each picture along time, height and width.
    pub grids: Vec<[i64; 3]>,
    /// Normalised state, padded: `[T, max_state_dim]`, row-major.
    pub state: Vec<f32>,
    /// Number of state steps, T.
    pub state_steps: usize,
    /// Index of the category weights.
    pub embodiment_id: i64,
}

/// Actions of one key: `[horizon, width]`, row-major, physical units.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyActions {
    /// The action key.
    pub key: String,
    /// Number of values in a step.
    pub width: usize,
    /// The values of all steps.
    pub values: Vec<f32>,
}

/// Collates samples into one batch; prompts are padded on the left to the longest one with
/// `padding_id`.
///
/// # Errors
/// Returns [`Refusal`] if there is no sample or if the states differ in shape.
pub fn collate(samples: &[&PreparedRow], padding_id: i64) -> Result<BatchInputs, Refusal> {
    let Some(first) = samples.first() else {
        return Err(input("a batch", "empty", "expected at least one sample"));
    };
    let shape = |row: &PreparedRow| (row.state_steps, row.state.len());
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
    let (batch, longest) = (batch as i64, longest as i64);
    Ok(BatchInputs {
        input_ids: Tensor::from_slice(&ids).view([batch, longest]),
        attention_mask: Tensor::from_slice(&mask).view([batch, longest]),
        pixel_values: match pixels[..] {
            [only] => only.shallow_clone(),
            _ => Tensor::cat(&pixels, 0),
        },
        image_grid_thw: grids.copied().collect(),
        state: Tensor::from_slice(&state).view([batch, first.state_steps as i64, -1]),
        embodiment_id: first.embodiment_id,
    })
}
