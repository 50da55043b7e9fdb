//! The network of GR00T N1.7: images and a prompt in, a chunk of normalised actions out.
//!
//! ```text
//! pixel_values ─► vision ─► image tokens ─┐              noise ─┐
//! input_ids ────► token embeddings ───────┴► language ─► head ──┴► sampler × steps ─► actions
//!                                            (no final norm)  ▲
//! state, embodiment_id ───────────────────────────────────────┘
//! ```
//!
//! [`Gr00t::new`] builds the network as its authors wrote it: separate projections, masks over padded batches,
//! modulations from the time of every row. It can be trained. [`Gr00t::lean`] turns it into the form that inference
//! uses: joint projections, everything that depends only on the checkpoint and the number of steps computed once, cross
//! attention over just the tokens it looks at. Both run the same modules and agree within rounding.
//!
//! Inside, activations are `[rows, width]` with the rows of all samples one after the other; only attention looks at
//! samples and heads. Source: NVIDIA/Isaac-GR00T of 2026-05-26, transformers 4.57.3 (`modeling_qwen3_vl.py`), diffusers
//! 0.35.1 (`attention_processor.py`, `embeddings.py`).

mod attention;
mod frame;
mod head;
mod kept;
mod language;
mod layers;
mod prompt;
mod rope;
mod tap;
mod vision;

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use crate::policy::gr00t::config::{ModelConfig, VlmConfig};
use crate::policy::gr00t::inputs::{InputError, Inputs, check_shape, integers};
use crate::policy::gr00t::weights::Weights;
use c10d::operators::InferenceMode;
use kept::Kept;
use prompt::Prompt;

pub use frame::{Batch, Frame, FrameKey, Normalise};
pub use head::{Conditions, Head, Rtc, SamplerOptions};
pub use language::Language;
pub use tap::{NoTap, Tap};
pub use vision::Vision;

/// Prompts and image sizes whose tables are remembered: a job has a handful.
const REMEMBERED: usize = 32;

/// Bytes of those tables: clients of a server decide how long their prompts are. A batch of 32 rows with 300 tokens each
/// has 20 MB.
const REMEMBERED_BYTES: usize = 512 << 20;

/// The whole network.
#[derive(Debug)]
pub struct Gr00t {
    vision: Vision,
    language: Language,
    head: Head,
    image_token_id: i64,
    prompts: Kept<PromptKey, Rc<Prompt>>,
}

type PromptKey = (i64, Vec<[bool; 2]>, Vec<[i64; 3]>);

/// What the backbone made of images and prompts.
#[derive(Debug)]
pub struct Features {
    /// Hidden states after `select_layer` decoder layers: `[B, S, backbone_embedding_dim]`.
    pub features: Tensor,
    prompt: Rc<Prompt>,
}

impl Features {
    /// Which positions are tokens: `[B, S]`, `bool`.
    pub fn attention_mask(&self) -> &Tensor {
        &self.prompt.attention_mask
    }

    /// Which positions are image tokens: `[B, S]`, `bool`.
    pub fn image_mask(&self) -> &Tensor {
        &self.prompt.image_mask
    }
}

impl Gr00t {
    /// Builds the network from a checkpoint; problems of tensors are told by [`Weights::finish`].
    pub fn new(weights: &mut Weights, config: &ModelConfig, vlm: &VlmConfig) -> Self {
        Self::with_buffers(weights, config, vlm, None)
    }

    /// As [`Self::new`], with the rotary frequencies rounded to `buffers` instead of to the dtype of the weights.
    pub fn with_buffers(weights: &mut Weights, config: &ModelConfig, vlm: &VlmConfig, buffers: Option<Kind>) -> Self {
        Self {
            vision: Vision::new(weights, &vlm.vision, buffers),
            language: Language::new(weights, config, &vlm.text, buffers),
            head: Head::new(weights, config),
            image_token_id: vlm.image_token_id,
            prompts: Kept::bounded(REMEMBERED, REMEMBERED_BYTES, |key, prompt| key.1.len() * 2 + prompt.bytes()),
        }
    }

    /// Rearranges the weights for inference; afterwards they can no longer be trained.
    #[must_use]
    pub fn lean(mut self) -> Self {
        let _mode = InferenceMode::begin();
        self.language.make_lean();
        self.head.make_lean();
        // Its matrices grow: they go into the gaps that the others have left.
        self.vision.make_lean();
        self.prompts.clear();
        self
    }

    /// Where the weights are.
    pub fn device(&self) -> Device {
        self.language.device()
    }

    /// Dtype of weights and activations.
    pub fn kind(&self) -> Kind {
        self.language.kind()
    }

    /// The action head, for training.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Runs vision tower and language model.
    ///
    /// # Errors
    /// [`InputError`] when prompts and images do not belong together.
    pub fn features(&self, inputs: &Inputs, tap: &mut dyn Tap) -> Result<Features, InputError> {
        let prompt = self.prompt(inputs)?;
        let pixels = inputs.pixel_values.to_device(self.device()).to_kind(self.kind());
        check_shape("pixel_values", &pixels, &[prompt.patches, self.vision.patch_width()])?;
        let layout = self.vision.layout(&inputs.image_grid_thw);
        let ids = inputs.input_ids.view(-1).to_device(self.device());
        let images = self.vision.forward(&pixels, layout.as_deref(), tap);
        let features = self.language.forward(&ids, &prompt, &images, tap);
        tap::note(tap, format_args!("backbone_features"), &features, None);
        tap::note(tap, format_args!("backbone_attention_mask"), &prompt.attention_mask, None);
        tap::note(tap, format_args!("image_mask"), &prompt.image_mask, None);
        Ok(Features { features, prompt })
    }

    /// Denoises `noise` (`[B, action_horizon, max_action_dim]`) to normalised actions of the same shape.
    ///
    /// # Errors
    /// [`InputError`] when state, embodiments or options do not fit the model.
    pub fn actions(
        &self,
        features: &Features,
        robot: &Robot<'_>,
        noise: &Tensor,
        options: &SamplerOptions<'_>,
        tap: &mut dyn Tap,
    ) -> Result<Tensor, InputError> {
        self.head.actions(features, robot, noise, options, tap)
    }

    fn text<'a>(&self, inputs: &'a Inputs, ids: &'a [i64], mask: &'a [i64]) -> prompt::Text<'a> {
        let (rows, grids) = (inputs.input_ids.size()[0], &inputs.image_grid_thw);
        prompt::Text { ids, mask, grids, rows, image_token_id: self.image_token_id }
    }

    fn prompt(&self, inputs: &Inputs) -> Result<Rc<Prompt>, InputError> {
        let (ids, mask) = (integers(&inputs.input_ids), integers(&inputs.attention_mask));
        let text = self.text(inputs, &ids, &mask);
        self.prompts.get_or_try((text.rows, text.stands(), inputs.image_grid_thw.clone()), |_| {
            Prompt::new(&text, self.vision.merge_size(), self.language.rope(), self.device()).map(Rc::new)
        })
    }
}

/// The robot's side of the inputs.
#[derive(Clone, Copy, Debug)]
pub struct Robot<'a> {
    /// Normalised state: `[B, T, max_state_dim]`.
    pub state: &'a Tensor,
    /// Embodiment of each sample: `[B]`, `i64`, on the CPU.
    pub embodiment_id: &'a Tensor,
}
