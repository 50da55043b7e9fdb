//! Encodes states and decodes actions of one embodiment, without pictures and text.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::refusal::Refusal;

use crate::gr00t::processor::ProcessorConfig;
use crate::gr00t::processor::action::ActionDecoder;
use crate::gr00t::processor::embodiment;
use crate::gr00t::processor::row::{KeyActions, StateSteps};
use crate::gr00t::processor::state::StateEncoder;
use crate::gr00t::processor::statistics::Statistics;

/// The state encoder and action decoder of one embodiment.
#[derive(Clone, Debug)]
pub struct StateActionCodec {
    state: StateEncoder,
    action: ActionDecoder,
}

impl StateActionCodec {
    /// Reads the statistics of `tag` from a `statistics.json`.
    ///
    /// # Errors
    /// Returns a [`Refusal`] that names file and statistic if one is missing or does not fit
    /// the configuration.
    pub fn read(statistics: &Path, config: &ProcessorConfig, tag: &str) -> Result<Self, Refusal> {
        Self::new(&Statistics::read(statistics)?, config, tag)
    }

    fn new(statistics: &Statistics, config: &ProcessorConfig, tag: &str) -> Result<Self, Refusal> {
        let Some(modalities) = config.modalities(tag) else {
            return Err(embodiment::unknown(tag, &config.tags()));
        };
        let known = statistics.of(tag)?;
        Ok(Self {
            state: StateEncoder::new(
                &modalities.state,
                &known,
                config.scaling,
                config.max_state_dim,
            )?,
            action: ActionDecoder::new(modalities, &known, config.scaling, config.max_action_dim)?,
        })
    }

    /// Returns the number of state steps that the network reads.
    pub fn state_steps(&self) -> usize {
        self.state.steps()
    }

    /// Returns the keys of the state vectors and their widths. The width is `None` for a vector
    /// that is encoded as sine and cosine, because it needs no statistics.
    pub fn state_keys(&self) -> Vec<(&str, Option<usize>)> {
        self.state.keys()
    }

    /// Returns the number of steps of a decoded action chunk.
    pub fn action_horizon(&self) -> usize {
        self.action.horizon()
    }

    /// Returns the keys and widths of a decoded action chunk, in the order of [`StateActionCodec::decode`].
    pub fn action_keys(&self) -> Vec<(&str, usize)> {
        self.action.keys()
    }

    /// Returns the keys of the actions that are relative to a state.
    pub fn relative_keys(&self) -> Vec<&str> {
        self.action.relative_keys()
    }

    /// Returns the state that the network reads: `[T, max_state_dim]`, row-major.
    ///
    /// # Errors
    /// Returns [`Refusal`] with the key that is missing or has a wrong shape.
    pub fn encode(&self, state: &BTreeMap<&str, StateSteps>) -> Result<Vec<f32>, Refusal> {
        self.state.encode(state)
    }

    /// Returns the physical actions by key, from one row of the network's output, `[at least
    /// horizon, max_action_dim]`, and from the raw state on which it is based.
    ///
    /// # Errors
    /// Returns [`Refusal`] if the output has a wrong size, or if a state that an
    /// action is relative to is missing.
    pub fn decode(
        &self,
        predicted: &[f32],
        state: &BTreeMap<&str, StateSteps>,
    ) -> Result<Vec<KeyActions>, Refusal> {
        self.action.decode(predicted, state)
    }
}
