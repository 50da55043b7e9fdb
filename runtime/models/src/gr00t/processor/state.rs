//! Encodes state vectors as the network's state.

use std::collections::BTreeMap;

use jobs::refusal::Refusal;

use crate::error::input;
use crate::gr00t::processor::config::Scaling;
use crate::gr00t::processor::modality::ModalityConfig;
use crate::gr00t::processor::row::StateSteps;
use crate::gr00t::processor::scale::ValueScale;
use crate::gr00t::processor::sine::sin_cos;
use crate::gr00t::processor::statistics::{StatisticsGroup, TagStatistics};

/// The encoder of one embodiment's state.
#[derive(Clone, Debug)]
pub(super) struct StateEncoder {
    keys: Vec<(String, Encoding)>,
    steps: usize,
    max_state_dim: usize,
    scaling: Scaling,
}

#[derive(Clone, Debug)]
enum Encoding {
    /// The sines, then the cosines: twice the width.
    SinCos,
    Scale(ValueScale),
}

impl StateEncoder {
    pub(super) fn new(
        modality: &ModalityConfig,
        statistics: &TagStatistics,
        scaling: Scaling,
        max_state_dim: usize,
    ) -> Result<Self, Refusal> {
        let mut keys = Vec::new();
        for key in &modality.keys {
            let encoding = if scaling.sin_cos_states && modality.has_sin_cos(key) {
                Encoding::SinCos
            } else {
                let known = statistics.key(StatisticsGroup::State, key)?;
                let scale = if modality.has_mean_std(key) {
                    ValueScale::spread(&known)
                } else {
                    ValueScale::range(&known, &scaling)
                };
                let scale = scale?;
                if scale.rows() != 1 {
                    return Err(
                        known.refuse("expected a list of numbers, not of rows, for a state")
                    );
                }
                Encoding::Scale(scale)
            };
            keys.push((key.clone(), encoding));
        }
        Ok(Self {
            keys,
            steps: modality.horizon(),
            max_state_dim,
            scaling,
        })
    }

    /// Returns the keys, and their widths where the statistics tell them.
    pub(super) fn keys(&self) -> Vec<(&str, Option<usize>)> {
        let width = |encoding: &Encoding| match encoding {
            Encoding::SinCos => None,
            Encoding::Scale(scale) => Some(scale.width()),
        };
        self.keys
            .iter()
            .map(|(key, encoding)| (key.as_str(), width(encoding)))
            .collect()
    }

    /// Returns the number of state steps.
    pub(super) fn steps(&self) -> usize {
        self.steps
    }

    /// Returns the state that the network reads: `[T, max_state_dim]`, row-major.
    pub(super) fn encode(&self, state: &BTreeMap<&str, StateSteps>) -> Result<Vec<f32>, Refusal> {
        let mut out = vec![0.0; self.steps * self.max_state_dim];
        let mut column = 0;
        for (key, encoding) in &self.keys {
            let steps = self.steps_of(key, encoding, state)?;
            let width = if self.scaling.exclude_state {
                steps.width()
            } else {
                encoding.width(steps.width())
            };
            if column + width > self.max_state_dim {
                let found = format!("wider than the network's {}", self.max_state_dim);
                return Err(input(
                    format!("the state up to `{key}`"),
                    found,
                    "expected a narrower state",
                ));
            }
            if !self.scaling.exclude_state {
                for (values, out) in steps.iter().zip(out.chunks_exact_mut(self.max_state_dim)) {
                    encoding.write(
                        values,
                        self.scaling.clip_outliers,
                        &mut out[column..column + width],
                    );
                }
            }
            column += width;
        }
        Ok(out)
    }

    fn steps_of<'a>(
        &self,
        key: &str,
        encoding: &Encoding,
        state: &'a BTreeMap<&str, StateSteps<'a>>,
    ) -> Result<&'a StateSteps<'a>, Refusal> {
        let what = || format!("state `{key}`");
        let Some(steps) = state.get(key) else {
            return Err(input(
                what(),
                "missing",
                "expected every state of the checkpoint",
            ));
        };
        if steps.steps() != self.steps {
            let wanted = format!("expected {}", self.steps);
            return Err(input(
                what(),
                format!("{} steps long", steps.steps()),
                wanted,
            ));
        }
        match encoding {
            Encoding::Scale(scale) if scale.width() != steps.width() => {
                let wanted = format!("expected {}", scale.width());
                Err(input(
                    what(),
                    format!("{} values wide", steps.width()),
                    wanted,
                ))
            }
            _ => Ok(steps),
        }
    }
}

impl Encoding {
    fn width(&self, raw: usize) -> usize {
        match self {
            Self::SinCos => 2 * raw,
            Self::Scale(_) => raw,
        }
    }

    fn write(&self, row: &[f32], clip: bool, out: &mut [f32]) {
        match self {
            Self::SinCos => {
                let (sines, cosines) = out.split_at_mut(row.len());
                for ((x, sine), cosine) in row.iter().zip(sines).zip(cosines) {
                    [*sine, *cosine] = sin_cos(*x);
                }
            }
            Self::Scale(scale) => {
                for (column, (x, out)) in row.iter().zip(out).enumerate() {
                    *out = scale.normalize(column, *x, clip);
                }
            }
        }
    }
}
