//! Turns an observation into the network's inputs, and the network's output into actions, both as
//! the reference does.
//!
//! ```text
//! RowInputs ─┬─ video ────────► image ──► patches, grids ─────────────┐
//!            ├─ instruction ──► prompt ─► token ids (needs the grids) ┼─► PreparedRow
//!            └─ state ────────► state ──► normalised, padded ─────────┘
//! PreparedRow, one for each row ─► batch ─► BatchInputs
//!
//! network's action ─► action (scale, pose; relative to the raw state) ─► physical actions by key
//! ```
//!
//! The checkpoint provides `processor_config.json`, `statistics.json` and `embodiment_id.json`; the
//! backbone provides tokenizer, chat template and `preprocessor_config.json`. Every error names
//! file, field, the value found and the values accepted.

mod action;
mod config;
mod embodiment;
mod modality;
mod numbers;
mod pose;
mod prompt;
mod row;
mod scale;
mod sine;
mod statistics;
mod template;

use std::path::Path;

use jobs::refusal::Refusal;
use rayon::prelude::*;

use crate::error::{differs, input};
use crate::gr00t::directory::processor_dir;

pub use crate::image::{Geometry, Image, PictureProcessor, PixelScale, Prepared, RgbPicture};
pub use config::{ProcessorConfig, Scaling};
pub use modality::{
    ActionConfig, ActionKind, Modalities, ModalityConfig, PoseFormat, Representation,
};
pub use numbers::StateActionCodec;
pub use prompt::Prompts;
pub use row::{KeyActions, PreparedRow, RowInputs, StateSteps, collate};

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

    /// Disables the normalisation of pixels: from now on they are bytes. Returns the scale with
    /// which the caller must normalise them.
    pub fn give_bytes(&mut self) -> PixelScale {
        self.pictures.give_bytes()
    }

    /// Prepares observations, all pictures at the same time, and returns one sample each, in order.
    ///
    /// # Errors
    /// Returns [`Refusal`] with the part of an observation that is missing or has a
    /// wrong shape.
    pub fn prepare(&self, raws: &[RowInputs]) -> Result<Vec<PreparedRow>, Refusal> {
        self.prepare_each(raws).into_iter().collect()
    }

    /// As [`Processor::prepare`], but an invalid observation does not affect the others.
    pub fn prepare_each(&self, raws: &[RowInputs]) -> Vec<Result<PreparedRow, Refusal>> {
        raws.par_iter().map(|raw| self.prepare_one(raw)).collect()
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
