//! The network of GR00T N1.7: maps images and a prompt to a chunk of normalised actions.
//!
//! ```text
//! pixel_values ─► vision ─► image tokens ─┐              noise ─┐
//! input_ids ────► token embeddings ───────┴► language ─► head ──┴► sampler × steps ─► actions
//!                                            (no final norm)  ▲
//! state, embodiment_id ───────────────────────────────────────┘
//! ```
//!
//! Projections with the same input are one matrix, cross-attention covers only the visible tokens,
//! and operators use fused kernels, which have no gradients. What depends only on the checkpoint
//! and the number of steps is computed once.
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

use std::cell::RefCell;
use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind};

use crate::cache::Cache;
use crate::gr00t::BatchInputs;
use crate::gr00t::config::{ModelConfig, VlmConfig};
use crate::weights::{JointSpec, Weights};
use head::ActionHead;
use language::Language;
use prompt::{PromptConstants, Text};
use vision::Vision;

pub use crate::nn::listen;
pub use constants::{Normalise, PassConstants, PassInputs};
pub use head::{Rtc, SamplerStart};

/// Number of prompts and image sizes whose tables are kept; a job has a handful.
const REMEMBERED: u64 = 32;

/// Maximum size of those tables in bytes, because the clients of a server choose the length of
/// their prompts. A batch of 32 rows with 300 tokens each needs 20 MB.
const REMEMBERED_BYTES: u64 = 512 << 20;

/// The network of GR00T N1.7: vision tower, language model and action head.
pub struct Gr00t {
    vision: Vision,
    language: Language,
    head: ActionHead,
    image_token_id: i64,
    prompts: RefCell<Cache<PromptKey, Rc<PromptConstants>>>,
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
            prompts: RefCell::new(Cache::new(REMEMBERED_BYTES)),
        }
    }

    /// Returns what the network takes from a checkpoint, in that order.
    pub fn tensors(config: &ModelConfig, vlm: &VlmConfig) -> Vec<JointSpec> {
        Weights::record(|weights| drop(Self::new(weights, config, vlm)))
    }

    /// Returns the device of the weights.
    pub fn device(&self) -> Device {
        self.language.embeddings.device()
    }

    /// Returns the dtype of weights and activations.
    pub fn kind(&self) -> Kind {
        self.language.embeddings.kind()
    }

    fn prompt(&self, inputs: &BatchInputs) -> Result<Rc<PromptConstants>, Refusal> {
        let text = Text::of(inputs, self.image_token_id);
        let key = (text.rows, text.stands(), inputs.image_grid_thw.clone());
        self.prompts.borrow_mut().get_or_try(key, || {
            let (merge, rope) = (self.vision.merge, &self.language.rope);
            let prompt = PromptConstants::new(&text, merge, rope, self.device())?;
            let bytes = (2 * text.ids.len() + prompt.bytes()) as u64;
            Ok((Rc::new(prompt), bytes.max(REMEMBERED_BYTES / REMEMBERED)))
        })
    }
}
