//! What the network reads: one batch of samples after images, text and state were prepared.

use tch::{Kind, Tensor};

/// One batch, on the CPU; the model moves it to its device and dtype.
#[derive(Debug)]
pub struct Inputs {
    /// Prompt token ids, padded on the left: `[B, S]`, `i64`.
    pub input_ids: Tensor,
    /// 1 where `input_ids` is a token, 0 where it is padding: `[B, S]`, `i64` or `bool`.
    pub attention_mask: Tensor,
    /// Normalised patches of all images, in the order of samples and of images in a sample: `[P, 1536]`, `f32`; or as
    /// bytes, `[P, 768]`, `u8`, which only a [pass](crate::policy::gr00t::model::Gr00t::pass) takes.
    pub pixel_values: Tensor,
    /// Patches of each image, (time, height, width).
    pub image_grid_thw: Vec<[i64; 3]>,
    /// Normalised state, zero-padded to the model's width: `[B, T, max_state_dim]`, `f32`.
    pub state: Tensor,
    /// Embodiment of each sample: `[B]`, `i64`.
    pub embodiment_id: Tensor,
}

/// Inputs that do not belong together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A prompt's image placeholders are not the tokens of its images.
    #[error("sample {sample}: {found} image tokens in its prompt, its images have {wanted}")]
    ImageTokens {
        /// Row of the batch.
        sample: usize,
        /// Placeholders in the prompt.
        found: i64,
        /// Tokens of the images that these placeholders start.
        wanted: i64,
    },
    /// More images than placeholders for them.
    #[error("the prompts have placeholders for {found} images, the batch has {wanted}")]
    Images {
        /// Images that a prompt shows.
        found: usize,
        /// Images given.
        wanted: usize,
    },
    /// A tensor does not have the shape that the model's configuration and the batch ask for.
    #[error("`{name}` has shape {found:?}, expected {wanted:?}")]
    Shape {
        /// Which tensor.
        name: &'static str,
        /// Its shape.
        found: Vec<i64>,
        /// The shape that is needed.
        wanted: Vec<i64>,
    },
    /// An embodiment without weights.
    #[error("embodiment id is {found}, the model has 0 to {last}")]
    Embodiment {
        /// The id.
        found: i64,
        /// The highest id.
        last: i64,
    },
    /// Real-time chunking options that contradict each other or the model's horizon.
    #[error("real-time chunking: {0}")]
    Rtc(String),
}

/// Refuses a tensor of another shape.
pub(crate) fn check_shape(name: &'static str, tensor: &Tensor, wanted: &[i64]) -> Result<(), InputError> {
    let found = tensor.size();
    if found == wanted { Ok(()) } else { Err(InputError::Shape { name, found, wanted: wanted.to_vec() }) }
}

/// The integers of a tensor, row-major.
pub(crate) fn integers(tensor: &Tensor) -> Vec<i64> {
    let flat = tensor.to_kind(Kind::Int64).to_device(tch::Device::Cpu).contiguous().view(-1);
    Vec::try_from(&flat).expect("a flat tensor of integers is a vector of integers")
}
