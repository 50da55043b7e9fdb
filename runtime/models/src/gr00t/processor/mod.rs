//! Turns an observation into the network's inputs, and the network's output into actions, both as
//! the reference does.
//!
//! ```text
//! RowInputs ─┬─ video ────────► image ──► patches, grids ─────────────┐
//!            ├─ instruction ──► prompt ─► token ids (needs the grids) ┼─► PreparedRow
//!            └─ state ────────► state ──► normalised, padded ─────────┘
//! PreparedRow, one for each row ─► batch ─► BatchInputs
//!
//! network's action ─► numbers (scale, pose; relative to the raw state) ─► physical actions by key
//! ```
//!
//! The checkpoint provides `processor_config.json`, `statistics.json` and `embodiment_id.json`; the
//! backbone provides tokenizer, chat template and `preprocessor_config.json`. Every error names
//! file, field, the value found and the values accepted.

mod config;
mod embodiment;
mod modality;
mod numbers;
mod pose;
mod prompt;
mod scale;
mod sine;
mod template;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use jobs::refusal::Refusal;
use rayon::prelude::*;
use tch::Tensor;

use crate::error::{differs, input};
use crate::gr00t::BatchInputs;
use crate::gr00t::directory::processor_dir;

pub use crate::image::{Geometry, Image, PictureProcessor, PixelScale, Prepared, RgbPicture};
pub use config::{ProcessorConfig, Scaling};
pub use modality::{
    ActionConfig, ActionKind, Modalities, ModalityConfig, PoseFormat, Representation,
};
pub use numbers::StateActionCodec;
pub use prompt::Prompts;

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
    /// Patches of the pictures, in the order of the prompt: `[p, 768]`, `u8`.
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

/// Prepares observations of one embodiment for one checkpoint.
#[derive(Debug)]
pub struct Processor {
    /// The embodiment's tag.
    pub tag: String,
    /// The inputs and actions of the checkpoint.
    pub modalities: Modalities,
    /// The encoder and decoder of states and actions.
    pub numbers: StateActionCodec,
    /// The processor of pictures.
    pub pictures: PictureProcessor,
    /// The builder of prompts.
    pub prompts: Prompts,
    /// Index of the category weights.
    pub embodiment_id: i64,
}

impl Processor {
    /// Reads a model directory (or its `processor/`, where training leaves the files) and the
    /// backbone's files in `vlm_dir`, by default `vlm/` in the model directory. `tag` is an
    /// embodiment tag or its enum name, in any case.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file, field, the value found and the values
    /// accepted.
    pub fn open(model_dir: &Path, vlm_dir: Option<&Path>, tag: &str) -> Result<Self, Refusal> {
        let dir = processor_dir(model_dir)?;
        let vlm = vlm_dir.map_or_else(|| model_dir.join("vlm"), Path::to_owned);
        let config = ProcessorConfig::read(&dir.join("processor_config.json"))?;
        let (tag, modalities) = embodiment::resolve(tag, &config.embodiments)?;
        let preprocessor = vlm.join("preprocessor_config.json");
        Ok(Self {
            tag: tag.to_owned(),
            modalities: modalities.clone(),
            numbers: StateActionCodec::read(&dir.join("statistics.json"), &config, tag)?,
            pictures: PictureProcessor::read(config.geometry, &preprocessor)?,
            prompts: Prompts::read(&vlm, config.formalize_language)?,
            embodiment_id: embodiment::id(&dir.join("embodiment_id.json"), tag)?,
        })
    }

    /// Prepares observations, all pictures at the same time, and returns one sample each, in order.
    ///
    /// # Errors
    /// Returns [`Refusal`] with the part of an observation that is missing or has a
    /// wrong shape.
    pub fn prepare(&self, raws: &[RowInputs]) -> Result<Vec<PreparedRow>, Refusal> {
        raws.par_iter().map(|raw| self.prepare_one(raw)).collect()
    }

    /// As [`Processor::prepare`], but an observation that is invalid, or is an error already, does
    /// not affect the others.
    pub fn prepare_each<'a, E: From<Refusal> + Send>(
        &self,
        raws: Vec<Result<RowInputs<'a>, E>>,
    ) -> Vec<Result<(RowInputs<'a>, PreparedRow), E>> {
        let prepare = |raw: Result<RowInputs<'a>, E>| {
            let raw = raw?;
            let prepared = self.prepare_one(&raw)?;
            Ok((raw, prepared))
        };
        raws.into_par_iter().map(prepare).collect()
    }

    fn prepare_one(&self, raw: &RowInputs) -> Result<PreparedRow, Refusal> {
        let state = self.numbers.encode(&raw.state)?;
        let prepared = self.pictures.prepare(&self.in_prompt_order(raw)?)?;
        Ok(PreparedRow {
            ids: self.prompts.tokens(raw.instruction, &prepared.tokens)?,
            pixels: prepared.pixels,
            grids: prepared.grids,
            state,
            state_steps: self.numbers.state_steps,
            embodiment_id: self.embodiment_id,
        })
    }

    /// Returns all views of the oldest step, then those of the next one, and so on.
    fn in_prompt_order<'a>(&self, raw: &RowInputs<'a>) -> Result<Vec<RgbPicture<'a>>, Refusal> {
        let video = &self.modalities.video;
        let mut views = Vec::with_capacity(video.keys.len());
        for key in &video.keys {
            let what = format!("video `{key}`");
            let Some(frames) = raw.video.get(key.as_str()) else {
                let wanted = "expected every view of the checkpoint";
                return Err(input(what, "missing", wanted));
            };
            differs(&what, [frames.len(), video.horizon()], "steps long")?;
            views.push(frames);
        }
        let at = |step: usize| views.iter().map(move |frames| frames[step]);
        Ok((0..video.horizon()).flat_map(at).collect())
    }
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
