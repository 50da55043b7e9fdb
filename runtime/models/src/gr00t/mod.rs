//! GR00T N1.7.
//!
//! ```text
//! model directory ─► directory ─► config   sizes of the network, checked
//!                        │
//!                        └──────► weights ─► tensors by name, on the device ─► model
//!
//! observations ─► processor ─► inputs ─► model ─► processor ─► actions
//!                                          └─ graphs: captured passes, on a GPU
//! ```

pub mod config;
pub mod directory;
pub mod model;
pub mod processor;

pub use config::{
    DiffusionConfig, ModelConfig, RopeScaling, TextConfig, VisionConfig, VlSelfAttention, VlmConfig,
};
pub use directory::ModelDir;

use jobs::refusal::Refusal;
use tch::{Kind, Tensor};

/// The inputs of the network: one batch on the CPU, after images, text and state have been
/// prepared; the model moves it to its own device and dtype.
#[derive(Debug)]
pub struct BatchInputs {
    /// Prompt token ids, padded on the left: `[B, S]`, `i64`.
    pub input_ids: Tensor,
    /// 1 where `input_ids` is a token, 0 where it is padding: `[B, S]`, `i64` or `bool`.
    pub attention_mask: Tensor,
    /// Patches of all images, ordered by sample and by image within a sample. Either normalised,
    /// `[P, 1536]`, `f32`, or as bytes, `[P, 768]`, `u8`, which only a
    /// [pass](crate::gr00t::model::Gr00t::pass) accepts.
    pub pixel_values: Tensor,
    /// Patches of each image as (time, height, width).
    pub image_grid_thw: Vec<[i64; 3]>,
    /// Normalised state, zero-padded to the model's width: `[B, T, max_state_dim]`, `f32`.
    pub state: Tensor,
    /// Embodiment id of all samples.
    pub embodiment_id: i64,
}

/// Returns an error if the tensor does not have the shape `wanted`.
pub(crate) fn check_shape(name: &str, tensor: &Tensor, wanted: &[i64]) -> Result<(), Refusal> {
    let found = tensor.size();
    if found == wanted {
        return Ok(());
    }
    Err(Refusal::new(format_args!(
        "`{name}` has shape {found:?}, expected {wanted:?}"
    )))
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
