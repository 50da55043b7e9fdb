//! The network of GR00T N1.7: maps images and a prompt to a chunk of normalised actions.
//!
//! ```text
//! pixel_values ─► vision ─► image tokens ─┐              noise ─┐
//! input_ids ────► token embeddings ───────┴► language ─► head ──┴► sampler × steps ─► actions
//!                                            (no final norm)  ▲
//! state, embodiment_id ───────────────────────────────────────┘
//! ```
//!
//! There is one form of the network, for inference and for training. Projections with the same
//! input are one matrix, cross-attention covers only the visible tokens, and operators use a fused
//! kernel unless they need a gradient. What depends only on the checkpoint and the number of steps
//! is computed once, unless the weights are trained.
//!
//! Inside the network, activations are `[rows, width]`, with the rows of all samples one after the
//! other; only attention separates samples and heads. Source: NVIDIA/Isaac-GR00T of 2026-05-26,
//! transformers 4.57.3 (`modeling_qwen3_vl.py`), diffusers 0.35.1 (`attention_processor.py`,
//! `embeddings.py`).

mod constants;
mod head;
mod language;
mod prompt;
mod vision;

use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind};

use crate::gr00t::config::{ModelConfig, VlmConfig};
use crate::gr00t::inputs::{BatchInputs, integers};
use crate::nn::memo::Memo;
use crate::weights::{JointSpec, Weights};
use head::ActionHead;
use language::Language;
use prompt::PromptConstants;
use vision::Vision;

pub use crate::nn::tap::listen;
pub use constants::{Normalise, PassConstants, PassInputs};
pub use head::{Conditions, Rtc, SamplerStart};

/// Number of prompts and image sizes whose tables are kept; a job has a handful.
const REMEMBERED: usize = 32;

/// Maximum size of those tables in bytes, because the clients of a server choose the length of
/// their prompts. A batch of 32 rows with 300 tokens each needs 20 MB.
const REMEMBERED_BYTES: usize = 512 << 20;

/// The network of GR00T N1.7: vision tower, language model and action head.
#[derive(Debug)]
pub struct Gr00t {
    vision: Vision,
    language: Language,
    head: ActionHead,
    image_token_id: i64,
    prompts: Memo<PromptKey, Rc<PromptConstants>>,
}

type PromptKey = (i64, Vec<[bool; 2]>, Vec<[i64; 3]>);

impl Gr00t {
    /// Builds the network from a checkpoint; [`Weights::finish`] reports problems with its tensors.
    pub fn new(weights: &mut Weights, config: &ModelConfig, vlm: &VlmConfig) -> Self {
        Self::with_buffers(weights, config, vlm, None)
    }

    /// As [`Self::new`], but rounds the rotary frequencies to the dtype `buffers` instead of that
    /// of the weights.
    pub fn with_buffers(
        weights: &mut Weights,
        config: &ModelConfig,
        vlm: &VlmConfig,
        buffers: Option<Kind>,
    ) -> Self {
        Self {
            vision: Vision::new(weights, &vlm.vision, buffers),
            language: Language::new(weights, config, &vlm.text, buffers),
            head: ActionHead::new(weights, config),
            image_token_id: vlm.image_token_id,
            prompts: Memo::bounded(REMEMBERED, REMEMBERED_BYTES, |key, prompt| {
                key.1.len() * 2 + prompt.bytes()
            }),
        }
    }

    /// Returns what the network takes from a checkpoint, in that order.
    pub fn tensors(config: &ModelConfig, vlm: &VlmConfig) -> Vec<JointSpec> {
        Weights::record(|weights| drop(Self::new(weights, config, vlm)))
    }

    /// Returns the device of the weights.
    pub fn device(&self) -> Device {
        self.language.device()
    }

    /// Returns the dtype of weights and activations.
    pub fn kind(&self) -> Kind {
        self.language.kind()
    }

    fn text<'a>(
        &self,
        inputs: &'a BatchInputs,
        ids: &'a [i64],
        mask: &'a [i64],
    ) -> prompt::Text<'a> {
        let (rows, grids) = (inputs.input_ids.size()[0], &inputs.image_grid_thw);
        prompt::Text {
            ids,
            mask,
            grids,
            rows,
            image_token_id: self.image_token_id,
        }
    }

    fn prompt(&self, inputs: &BatchInputs) -> Result<Rc<PromptConstants>, Refusal> {
        let (ids, mask) = (
            integers(&inputs.input_ids),
            integers(&inputs.attention_mask),
        );
        let text = self.text(inputs, &ids, &mask);
        self.prompts.get_or_try(
            (text.rows, text.stands(), inputs.image_grid_thw.clone()),
            |_| {
                PromptConstants::new(
                    &text,
                    self.vision.merge_size(),
                    self.language.rope(),
                    self.device(),
                )
                .map(Rc::new)
            },
        )
    }
}
