//! Splits a batch into constants that depend only on its shape and data that differs between
//! batches of that shape.
//!
//! ```text
//! Inputs ─┬─► PassConstants   tables, masks, the sampler's constants: made once for a shape
//!         └─► Batch   tokens, pixels, state, noise: copied to the device each time
//! pass(PassConstants, Batch) ─► actions
//! ```
//!
//! A pass launches work on the device and does nothing else: it makes no table, copies nothing from
//! the host and never waits. That is exactly what a CUDA graph can capture.

use std::rc::Rc;

use jobs::refusal::Refusal;
use tch::{Device, Kind, Tensor};

use crate::gr00t::model::head::SamplerPlan;
use crate::gr00t::model::prompt::{PromptConstants, Text};
use crate::gr00t::model::vision::PatchTables;
use crate::gr00t::model::{Gr00t, SamplerStart};
use crate::gr00t::{BatchInputs, check_shape};
use crate::graphs::{PassShape, to_device};
use crate::image::PixelScale;
use crate::nn::note;

/// Frames in a patch: the same picture twice.
const FRAMES: i64 = 2;

/// Colour channels of a picture.
const CHANNELS: i64 = 3;

/// The constants of a forward pass. It owns its tables, which therefore live as long as it does.
pub struct PassConstants {
    prompt: Rc<PromptConstants>,
    layout: Option<Rc<PatchTables>>,
    plan: Rc<SamplerPlan>,
    normalise: Option<Rc<Normalise>>,
}

/// The data that differs between batches of one shape.
pub struct PassInputs {
    /// Token ids, `[rows·S]`, `i64`.
    pub ids: Tensor,
    /// Patches: `[P, 1536]` normalised, `f32`; or `[P, 768]` as bytes from the camera, `u8`.
    pub pixels: Tensor,
    /// Normalised state, `[rows, T, max_state_dim]`, `f32`.
    pub state: Tensor,
    /// Where the denoising of all rows starts, `f32`: actions `[rows, action_horizon,
    /// max_action_dim]`, strength `[rows, action_horizon, 1]`.
    pub start: SamplerStart,
}

impl PassInputs {
    /// Builds a batch on the host from samples, and from where their denoising starts.
    pub fn new(inputs: &BatchInputs, start: SamplerStart) -> Self {
        Self {
            ids: inputs.input_ids.view(-1),
            pixels: inputs.pixel_values.shallow_clone(),
            state: inputs.state.shallow_clone(),
            start,
        }
    }

    /// Returns all tensors, in a fixed order.
    pub fn tensors(&self) -> Vec<Tensor> {
        let always = [&self.ids, &self.pixels, &self.state, &self.start.actions];
        let all = always.into_iter().chain(&self.start.strength);
        all.map(Tensor::shallow_clone).collect()
    }

    /// Returns the batch with these [tensors](Self::tensors).
    ///
    /// # Panics
    /// Panics if there are fewer than four.
    pub fn of(tensors: &[Tensor]) -> Self {
        let at = |index: usize| tensors[index].shallow_clone();
        Self {
            ids: at(0),
            pixels: at(1),
            state: at(2),
            start: SamplerStart {
                actions: at(3),
                strength: tensors.get(4).map(Tensor::shallow_clone),
            },
        }
    }

    /// Returns a copy on `device`.
    #[must_use]
    pub fn to_device(&self, device: Device) -> Self {
        Self::of(&to_device(&self.tensors(), device))
    }
}

/// Converts the bytes of a picture to numbers: (byte − mean) / deviation in float32, to the bit as
/// the reference's image processor does.
pub struct Normalise {
    /// Mean of each channel, `[1, 3, 1]`.
    mean: Tensor,
    /// Standard deviation of each channel, `[1, 3, 1]`.
    deviation: Tensor,
}

impl Normalise {
    /// Brings a scale to a device.
    pub fn new(scale: PixelScale, device: Device) -> Self {
        let channels = |values: [f32; 3]| {
            Tensor::from_slice(&values)
                .view([1, CHANNELS, 1])
                .to_device(device)
        };
        Self {
            mean: channels(scale.mean),
            deviation: channels(scale.deviation),
        }
    }

    /// Converts `[P, 768]` bytes (channel, row, column) to `[P, 1536]` (channel, frame, row,
    /// column) in `kind`.
    ///
    /// The divisor is a tensor because torch divides by a plain number by multiplying with its
    /// inverse, which rounds differently.
    pub fn apply(&self, bytes: &Tensor, kind: Kind) -> Tensor {
        let (patches, width) = bytes.size2().expect("patches are [P, 768]");
        let plane = width / CHANNELS;
        let shape = [patches, CHANNELS, FRAMES, plane];
        let centred = bytes.view([patches, CHANNELS, plane]) - &self.mean;
        let centred = centred.unsqueeze(2).expand(shape, false);
        let out = Tensor::empty(shape, (kind, bytes.device()));
        centred
            .divide_out(&out, &self.deviation.unsqueeze(2))
            .view([patches, FRAMES * width])
    }
}

impl Gr00t {
    /// Returns what batches must share to use the same constants and the same captured pass;
    /// `has_strength` says whether steps of their chunks follow the velocity by factors.
    pub fn shape(&self, inputs: &BatchInputs, steps: i64, has_strength: bool) -> PassShape {
        let grids = &inputs.image_grid_thw;
        let has_bytes = inputs.pixel_values.kind() == Kind::Uint8;
        let mut detail = vec![
            steps,
            inputs.embodiment_id,
            has_bytes.into(),
            has_strength.into(),
            grids.len() as i64,
        ];
        detail.extend(grids.iter().flatten());
        // For every position: whether it holds a token, and whether it has the id of an image.
        let stands = Text::of(inputs, self.image_token_id).stands();
        detail.extend(stands.iter().flatten().map(|&stands| i64::from(stands)));
        let (rows, tokens) = inputs.input_ids.size2().expect("ids are [B, S]");
        PassShape {
            rows,
            tokens,
            detail,
        }
    }

    /// Checks a batch and computes the constants of its passes; `normalise` is needed if its pixels
    /// are bytes.
    ///
    /// # Errors
    /// Returns a [`Refusal`] if prompts, images, state, embodiments or noise do not fit the
    /// model or each other.
    pub fn constants(
        &self,
        inputs: &BatchInputs,
        noise: &Tensor,
        steps: i64,
        normalise: Option<&Rc<Normalise>>,
    ) -> Result<PassConstants, Refusal> {
        let prompt = self.prompt(inputs)?;
        let has_bytes = inputs.pixel_values.kind() == Kind::Uint8;
        let width = self.vision.patch_width / if has_bytes { FRAMES } else { 1 };
        let wanted = [prompt.patches, width];
        check_shape("pixel_values", &inputs.pixel_values, &wanted)?;
        let plan = self.head.constants(prompt.rows, inputs, noise, steps)?;
        let layout = self.vision.layout(&inputs.image_grid_thw);
        let normalise = normalise.filter(|_| has_bytes).map(Rc::clone);
        Ok(PassConstants {
            prompt,
            layout,
            plan,
            normalise,
        })
    }

    /// Returns the actions of a batch on the model's device: `[rows, action_horizon,
    /// max_action_dim]`, `f32`, normalised.
    pub fn pass(&self, constants: &PassConstants, batch: &PassInputs) -> Tensor {
        let features = self.features(constants, batch);
        let features = (&features, &*constants.prompt);
        self.head
            .pass(&constants.plan, features, &batch.state, &batch.start)
            .to_kind(Kind::Float)
            .contiguous()
    }

    /// Returns the hidden states after `select_layer` decoder layers, `[rows, S,
    /// backbone_embedding_dim]`: the first part of [`Self::pass`].
    fn features(&self, constants: &PassConstants, batch: &PassInputs) -> Tensor {
        let pixels = match &constants.normalise {
            Some(normalise) => normalise.apply(&batch.pixels, self.kind()),
            None => batch.pixels.to_kind(self.kind()),
        };
        let prompt = &constants.prompt;
        let images = self.vision.forward(&pixels, constants.layout.as_deref());
        let features = self.language.forward(&batch.ids, prompt, &images);
        note(format_args!("backbone_features"), &features, None);
        let mask = &prompt.attention_mask;
        note(format_args!("backbone_attention_mask"), mask, None);
        note(format_args!("image_mask"), &prompt.image_mask, None);
        features
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_numbers_by_a_difference_and_a_quotient_in_float32() {
        let (mean, deviation) = ([127.5, 123.675, 116.28], [127.5, 58.395, 57.12]);
        let normalise = Normalise::new(PixelScale { mean, deviation }, Device::Cpu);
        let bytes: Vec<u8> = (0..3 * 256).map(|i| (i % 256) as u8).collect();
        let found = normalise.apply(&Tensor::from_slice(&bytes).view([1, 768]), Kind::Float);
        let found = Vec::<f32>::try_from(found.view(-1)).unwrap();
        for (at, found) in found.into_iter().enumerate() {
            let (channel, byte) = (at / 512, at % 256);
            assert_eq!(
                found,
                (byte as f32 - mean[channel]) / deviation[channel],
                "channel {channel}, byte {byte}"
            );
        }
    }
}
