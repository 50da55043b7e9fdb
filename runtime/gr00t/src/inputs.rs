//! The inputs of the network: one batch of samples after images, text and state have been prepared.

use tch::{Kind, Tensor};

/// One batch on the CPU; the model moves it to its own device and dtype.
#[derive(Debug)]
pub struct BatchInputs {
    /// Prompt token ids, padded on the left: `[B, S]`, `i64`.
    pub input_ids: Tensor,
    /// 1 where `input_ids` is a token, 0 where it is padding: `[B, S]`, `i64` or `bool`.
    pub attention_mask: Tensor,
    /// Patches of all images, ordered by sample and by image within a sample. Either normalised,
    /// `[P, 1536]`, `f32`, or as bytes, `[P, 768]`, `u8`, which only a
    /// [pass](crate::model::Gr00t::pass) accepts.
    pub pixel_values: Tensor,
    /// Patches of each image as (time, height, width).
    pub image_grid_thw: Vec<[i64; 3]>,
    /// Normalised state, zero-padded to the model's width: `[B, T, max_state_dim]`, `f32`.
    pub state: Tensor,
    /// Embodiment id of each sample: `[B]`, `i64`.
    pub embodiment_id: Tensor,
}

/// The reason why inputs are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The image placeholders of a prompt do not match the tokens of its images.
    #[error("sample {sample}: {found} image tokens in its prompt, its images have {wanted}")]
    ImageTokens {
        /// Row of the batch.
        sample: usize,
        /// Number of placeholders in the prompt.
        found: i64,
        /// Number of tokens of the images that these placeholders start.
        wanted: i64,
    },
    /// There are more images than placeholders for them.
    #[error("the prompts have placeholders for {found} images, the batch has {wanted}")]
    Images {
        /// Number of images that the prompts contain.
        found: usize,
        /// Number of images given.
        wanted: usize,
    },
    /// A tensor does not have the shape that the model's configuration and the batch require.
    #[error("`{name}` has shape {found:?}, expected {wanted:?}")]
    Shape {
        /// Name of the tensor.
        name: &'static str,
        /// Shape of the tensor.
        found: Vec<i64>,
        /// The required shape.
        wanted: Vec<i64>,
    },
    /// The checkpoint has no weights for this embodiment.
    #[error("embodiment id is {found}, expected 0 to {last}")]
    Embodiment {
        /// The requested embodiment id.
        found: i64,
        /// The highest valid id.
        last: i64,
    },
    /// The options for real-time chunking contradict each other or the model's horizon.
    #[error("real-time chunking: {0}")]
    Rtc(String),
}

/// Returns an error if the tensor does not have the shape `wanted`.
pub(crate) fn check_shape(
    name: &'static str,
    tensor: &Tensor,
    wanted: &[i64],
) -> Result<(), InputError> {
    let found = tensor.size();
    if found == wanted {
        Ok(())
    } else {
        Err(InputError::Shape {
            name,
            found,
            wanted: wanted.to_vec(),
        })
    }
}

/// Returns the integers of a tensor, row-major.
pub(crate) fn integers(tensor: &Tensor) -> Vec<i64> {
    let flat = tensor
        .to_kind(Kind::Int64)
        .to_device(tch::Device::Cpu)
        .contiguous()
        .view(-1);
    Vec::try_from(&flat).expect("a flat tensor of integers is a vector of integers")
}
