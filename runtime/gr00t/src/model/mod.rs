//! The network of GR00T N1.7: maps images and a prompt to a chunk of normalised actions.
//!
//! ```text
//! pixel_values ─► vision ─► image tokens ─┐              noise ─┐
//! input_ids ────► token embeddings ───────┴► language ─► head ──┴► sampler × steps ─► actions
//!                                            (no final norm)  ▲
//! state, embodiment_id ───────────────────────────────────────┘
//! ```
//!
//! [`Gr00t::new`] builds the network as its authors wrote it: separate projections, masks over
//! padded batches, and modulations computed from the time of every row. This form can be trained.
//! [`Gr00t::fused`] turns it into the fused form for inference: joint projections, everything that
//! depends only on the checkpoint and the number of steps computed once, and cross-attention over
//! only the visible tokens. Both forms run the same modules and agree within rounding.
//!
//! Inside the network, activations are `[rows, width]`, with the rows of all samples one after the
//! other; only attention separates samples and heads. Source: NVIDIA/Isaac-GR00T of 2026-05-26,
//! transformers 4.57.3 (`modeling_qwen3_vl.py`), diffusers 0.35.1 (`attention_processor.py`,
//! `embeddings.py`).

mod attention;
mod constants;
mod head;
mod language;
mod layers;
mod memo;
mod prompt;
mod rope;
mod tap;
mod vision;

use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::config::{ModelConfig, VlmConfig};
use crate::inputs::{BatchInputs, check_shape, integers};
use crate::weights::Weights;
use c10d::operators::InferenceMode;
use memo::Memo;
use prompt::PromptConstants;

pub use constants::{ConstantsKey, Normalise, PassConstants, PassInputs};
pub use head::{ActionHead, Conditions, Rtc, SamplerOptions, SamplerStart};
pub use language::Language;
pub use tap::{NoTap, Tap};
pub use vision::Vision;

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

/// The backbone's output for images and prompts.
#[derive(Debug)]
pub struct Features {
    /// Hidden states after `select_layer` decoder layers: `[B, S, backbone_embedding_dim]`.
    pub features: Tensor,
    prompt: Rc<PromptConstants>,
}

impl Features {
    /// Returns which positions are tokens: `[B, S]`, `bool`.
    pub fn attention_mask(&self) -> &Tensor {
        &self.prompt.attention_mask
    }

    /// Returns which positions are image tokens: `[B, S]`, `bool`.
    pub fn image_mask(&self) -> &Tensor {
        &self.prompt.image_mask
    }
}

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

    /// Rearranges the weights for inference; the network can no longer be trained afterwards.
    #[must_use]
    pub fn fused(mut self) -> Self {
        let _mode = InferenceMode::begin();
        self.language.make_lean();
        self.head.make_lean();
        // The matrices of the vision tower grow here: they go into the gaps that the other parts
        // have left.
        self.vision.make_lean();
        self.prompts.clear();
        self
    }

    /// Returns the device of the weights.
    pub fn device(&self) -> Device {
        self.language.device()
    }

    /// Returns the dtype of weights and activations.
    pub fn kind(&self) -> Kind {
        self.language.kind()
    }

    /// Returns the action head, for training.
    pub fn head(&self) -> &ActionHead {
        &self.head
    }

    /// Runs the vision tower and the language model.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if prompts and images do not belong together.
    pub fn features(&self, inputs: &BatchInputs, tap: &mut dyn Tap) -> Result<Features, Refusal> {
        let prompt = self.prompt(inputs)?;
        let pixels = inputs
            .pixel_values
            .to_device(self.device())
            .to_kind(self.kind());
        check_shape(
            "pixel_values",
            &pixels,
            &[prompt.patches, self.vision.patch_width()],
        )?;
        let layout = self.vision.layout(&inputs.image_grid_thw);
        let ids = inputs.input_ids.view(-1).to_device(self.device());
        let images = self.vision.forward(&pixels, layout.as_deref(), tap);
        let features = self.language.forward(&ids, &prompt, &images, tap);
        tap::note(tap, format_args!("backbone_features"), &features, None);
        tap::note(
            tap,
            format_args!("backbone_attention_mask"),
            &prompt.attention_mask,
            None,
        );
        tap::note(tap, format_args!("image_mask"), &prompt.image_mask, None);
        Ok(Features { features, prompt })
    }

    /// Denoises `noise` (`[B, action_horizon, max_action_dim]`) to normalised actions of the same
    /// shape.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if state, embodiments or options do not fit the model.
    pub fn actions(
        &self,
        features: &Features,
        robot: &Robot<'_>,
        noise: &Tensor,
        options: &SamplerOptions<'_>,
        tap: &mut dyn Tap,
    ) -> Result<Tensor, Refusal> {
        self.head.actions(features, robot, noise, options, tap)
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

/// The robot's part of the inputs: its state and embodiment.
#[derive(Clone, Copy, Debug)]
pub struct Robot<'a> {
    /// Normalised state: `[B, T, max_state_dim]`.
    pub state: &'a Tensor,
    /// Embodiment of each sample: `[B]`, `i64`, on the CPU.
    pub embodiment_id: &'a Tensor,
}
