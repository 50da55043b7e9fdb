//! Both directions of one embodiment's numbers, without pictures and words.

use std::collections::BTreeMap;
use std::path::Path;

use super::action::ActionDecoder;
use super::sample::{ActionRows, Rows};
use super::state::StateEncoder;
use super::statistics::Statistics;
use super::{ProcessorConfig, ProcessorError};

/// State vectors to the network, actions from it.
#[derive(Clone, Debug)]
pub struct Numbers {
    state: StateEncoder,
    action: ActionDecoder,
}

impl Numbers {
    /// Reads the statistics of `tag` from a `statistics.json`.
    ///
    /// # Errors
    /// [`ProcessorError`] naming file and statistic if one is missing or does not fit the configuration.
    pub fn read(statistics: &Path, config: &ProcessorConfig, tag: &str) -> Result<Self, ProcessorError> {
        Self::new(&Statistics::read(statistics)?, config, tag)
    }

    fn new(statistics: &Statistics, config: &ProcessorConfig, tag: &str) -> Result<Self, ProcessorError> {
        let Some(modalities) = config.modalities(tag) else {
            return Err(ProcessorError::Tag { tag: tag.to_owned(), known: config.tags().join(", ") });
        };
        let known = statistics.of(tag)?;
        Ok(Self {
            state: StateEncoder::new(&modalities.state, &known, config.scaling, config.max_state_dim)?,
            action: ActionDecoder::new(modalities, &known, config.scaling, config.max_action_dim)?,
        })
    }

    /// Steps of the state that the network reads.
    pub fn state_rows(&self) -> usize {
        self.state.rows()
    }

    /// The keys of the state vectors that are read, and their widths; `None` for one that goes in as sine and cosine, of
    /// which no statistics are kept.
    pub fn state_keys(&self) -> Vec<(&str, Option<usize>)> {
        self.state.keys()
    }

    /// Steps of a decoded action chunk.
    pub fn action_horizon(&self) -> usize {
        self.action.horizon()
    }

    /// The keys and widths of a decoded action chunk, in the order of [`Numbers::decode`].
    pub fn action_keys(&self) -> Vec<(&str, usize)> {
        self.action.keys()
    }

    /// The state that the network reads: `[T, max_state_dim]`, row-major.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] naming the key that is missing or has a wrong shape.
    pub fn encode(&self, state: &BTreeMap<&str, Rows>) -> Result<Vec<f32>, ProcessorError> {
        self.state.encode(state)
    }

    /// Physical actions by key from one row of the network's output, `[at least horizon, max_action_dim]`, and the
    /// raw state that it was made from.
    ///
    /// # Errors
    /// [`ProcessorError::Input`] if the output has a wrong size or a state that an action is relative to is missing.
    pub fn decode(&self, predicted: &[f32], state: &BTreeMap<&str, Rows>) -> Result<Vec<ActionRows>, ProcessorError> {
        self.action.decode(predicted, state)
    }
}
