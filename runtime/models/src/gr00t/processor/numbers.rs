//! Encodes states and decodes actions of one embodiment, without pictures and text: here the
//! states.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::refusal::Refusal;

use crate::error::{differs, input};
use crate::gr00t::processor::StateSteps;
use crate::gr00t::processor::action::DecodedKey;
use crate::gr00t::processor::config::{ProcessorConfig, Scaling};
use crate::gr00t::processor::embodiment;
use crate::gr00t::processor::modality::ModalityConfig;
use crate::gr00t::processor::scale::ValueScale;
use crate::gr00t::processor::sine::sin_cos;
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

/// A state vector, and how it is encoded.
#[derive(Clone, Debug)]
pub(super) struct EncodedKey {
    name: String,
    /// `None`: the sines, then the cosines, which is twice the width.
    scale: Option<ValueScale>,
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

    /// Returns the keys of the state vectors and their widths. The width is `None` for a vector
    /// that is encoded as sine and cosine, because it needs no statistics.
    pub fn state_keys(&self) -> Vec<(&str, Option<usize>)> {
        let width = |key: &EncodedKey| key.scale.as_ref().map(ValueScale::width);
        let keys = self.states.iter();
        keys.map(|key| (key.name.as_str(), width(key))).collect()
    }

    /// Returns the state that the network reads: `[T, max_state_dim]`, row-major.
    ///
    /// # Errors
    /// Returns [`Refusal`] with the key that is missing or has a wrong shape.
    pub fn encode(&self, state: &BTreeMap<&str, StateSteps>) -> Result<Vec<f32>, Refusal> {
        let (most, scaling) = (self.max_state_dim, &self.scaling);
        let mut out = vec![0.0; self.state_steps * most];
        let mut column = 0;
        for key in &self.states {
            let steps = key.of(state, self.state_steps)?;
            let is_twice = key.scale.is_none() && !scaling.exclude_state;
            let width = if is_twice { 2 } else { 1 } * steps.width();
            if column + width > most {
                let what = format_args!("the state up to `{}`", key.name);
                let found = format_args!("wider than the network's {most}");
                return Err(input(what, found, "expected a narrower state"));
            }
            if !scaling.exclude_state {
                for (values, out) in steps.iter().zip(out.chunks_exact_mut(most)) {
                    let out = &mut out[column..column + width];
                    key.write(values, scaling.clip_outliers, out);
                }
            }
            column += width;
        }
        Ok(out)
    }
}

impl EncodedKey {
    pub(super) fn all(
        modality: &ModalityConfig,
        statistics: &Statistics,
        tag: &str,
        scaling: &Scaling,
    ) -> Result<Vec<Self>, Refusal> {
        let encoded = |name: &String| {
            let name = name.clone();
            if scaling.sin_cos_states && modality.has_sin_cos(&name) {
                return Ok(Self { name, scale: None });
            }
            let known = statistics.key([tag, "state", &name])?;
            let scale = match modality.has_mean_std(&name) {
                true => ValueScale::spread(&known)?,
                false => ValueScale::range(&known, scaling.range())?,
            };
            let wanted = "expected a list of numbers, not of rows, for a state";
            known.need(scale.rows() == 1, wanted)?;
            let scale = Some(scale);
            Ok(Self { name, scale })
        };
        modality.keys.iter().map(encoded).collect()
    }

    /// Returns the steps of this vector, checked.
    fn of<'a>(
        &self,
        state: &'a BTreeMap<&str, StateSteps<'a>>,
        wanted: usize,
    ) -> Result<&'a StateSteps<'a>, Refusal> {
        let what = format!("state `{}`", self.name);
        let Some(steps) = state.get(self.name.as_str()) else {
            let wanted = "expected every state of the checkpoint";
            return Err(input(what, "missing", wanted));
        };
        let width = self.scale.as_ref().map_or(steps.width(), ValueScale::width);
        differs(&what, [steps.steps(), wanted], "steps long")?;
        differs(&what, [steps.width(), width], "values wide")?;
        Ok(steps)
    }

    fn write(&self, row: &[f32], clip: bool, out: &mut [f32]) {
        if let Some(scale) = &self.scale {
            for (column, (x, out)) in row.iter().zip(out).enumerate() {
                *out = scale.normalize(column, *x, clip);
            }
            return;
        }
        let (sines, cosines) = out.split_at_mut(row.len());
        for ((x, sine), cosine) in row.iter().zip(sines).zip(cosines) {
            [*sine, *cosine] = sin_cos(*x);
        }
    }
}
