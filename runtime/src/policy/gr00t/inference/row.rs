//! Where the denoising of a row starts, and what comes out.

use models::gr00t::model::{Rtc, SamplerStart};
use models::gr00t::processor::KeyActions;
use tch::Tensor;

use crate::policy::PolicyError;
use crate::policy::gr00t::inference::inference;

/// Where the denoising of a row starts.
#[derive(Debug)]
pub struct RowStart {
    /// Noise, perhaps after the end of the previous chunk: `[action_horizon, max_action_dim]`.
    pub actions: Tensor,
    /// Factor by which each step follows the velocity: `[action_horizon, 1]`. The rows of an
    /// inference all have it, or none has.
    pub strength: Option<Tensor>,
}

impl RowStart {
    /// Starts from noise alone.
    pub fn at(noise: Tensor) -> Self {
        Self {
            actions: noise,
            strength: None,
        }
    }

    /// Starts from noise, and from the end of the previous chunk.
    ///
    /// # Errors
    /// Returns an error if the two chunks cannot overlap like that.
    pub fn after(noise: &Tensor, rtc: &Rtc<'_>) -> Result<Self, PolicyError> {
        let start = SamplerStart::new(noise.unsqueeze(0), Some(rtc)).map_err(inference)?;
        Ok(Self {
            actions: start.actions.squeeze_dim(0),
            strength: start.strength.map(|strength| strength.squeeze_dim(0)),
        })
    }
}

/// What the inference of a row gives.
#[derive(Debug)]
pub struct RowChunk {
    /// What the network predicts, normalised: `[action_horizon, max_action_dim]`, row-major.
    pub predicted: Vec<f32>,
    /// The physical actions of it.
    pub actions: Vec<KeyActions>,
}
