//! Encodes states and decodes actions of one embodiment, without pictures and text.

use std::path::Path;

use jobs::refusal::Refusal;

use crate::gr00t::processor::action::DecodedKey;
use crate::gr00t::processor::config::{ProcessorConfig, Scaling};
use crate::gr00t::processor::embodiment;
use crate::gr00t::processor::state::EncodedKey;
use crate::gr00t::processor::statistics::Statistics;

/// The state encoder and action decoder of one embodiment.
#[derive(Clone, Debug)]
pub struct StateActionCodec {
    pub(super) states: Vec<EncodedKey>,
    pub(super) state_steps: usize,
    pub(super) max_state_dim: usize,
    pub(super) scaling: Scaling,
    pub(super) actions: Vec<DecodedKey>,
    pub(super) horizon: usize,
    pub(super) max_action_dim: usize,
}

impl StateActionCodec {
    /// Reads the statistics of `tag` from a `statistics.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file and statistic if one is missing or does not fit
    /// the configuration.
    pub fn read(statistics: &Path, config: &ProcessorConfig, tag: &str) -> Result<Self, Refusal> {
        let statistics = Statistics::read(statistics)?;
        let (tag, modalities) = embodiment::resolve(tag, &config.embodiments)?;
        Ok(Self {
            states: EncodedKey::all(&modalities.state, &statistics, tag, &config.scaling)?,
            state_steps: modalities.state.horizon(),
            max_state_dim: config.max_state_dim,
            scaling: config.scaling,
            actions: DecodedKey::all(modalities, &statistics, tag, config)?,
            horizon: modalities.action.horizon(),
            max_action_dim: config.max_action_dim,
        })
    }
}
