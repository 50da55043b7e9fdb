//! Decodes the network's actions into physical ones.

use std::collections::BTreeMap;

use jobs::refusal::Refusal;

use crate::error::input;
use crate::gr00t::processor::config::Scaling;
use crate::gr00t::processor::modality::{ActionConfig, Modalities, PoseFormat, Representation};
use crate::gr00t::processor::pose::RigidPose;
use crate::gr00t::processor::row::{KeyActions, StateSteps};
use crate::gr00t::processor::scale::ValueScale;
use crate::gr00t::processor::statistics::{StatisticsGroup, TagStatistics};

/// The decoder of one embodiment's actions.
#[derive(Clone, Debug)]
pub(super) struct ActionDecoder {
    keys: Vec<DecodedKey>,
    horizon: usize,
    max_action_dim: usize,
}

#[derive(Clone, Debug)]
struct DecodedKey {
    name: String,
    /// First column in the network's action.
    column: usize,
    scale: ValueScale,
    reference: Option<Reference>,
}

/// The state to which a relative action is added.
#[derive(Clone, Debug)]
struct Reference {
    state_key: String,
    pose: Option<PoseFormat>,
}

impl ActionDecoder {
    pub(super) fn new(
        modalities: &Modalities,
        statistics: &TagStatistics,
        scaling: Scaling,
        max_action_dim: usize,
    ) -> Result<Self, Refusal> {
        let action = &modalities.action;
        let mut keys: Vec<DecodedKey> = Vec::new();
        for (index, name) in action.keys.iter().enumerate() {
            let config = action.actions.as_ref().map(|actions| &actions[index]);
            let relative = config.filter(|config| {
                config.rep == Representation::Relative && scaling.use_relative_action
            });
            let known = statistics.key(StatisticsGroup::Action, name)?;
            let width = known.table("min").or_else(|_| known.table("mean"))?.width;
            let source = match relative {
                Some(_) => statistics.key(StatisticsGroup::RelativeAction, name)?,
                None => known.clone(),
            };
            let scale = match relative {
                _ if action.has_mean_std(name) => ValueScale::spread(&source)?,
                Some(_) => ValueScale::extremes(&source)?,
                None => ValueScale::range(&source, &scaling)?,
            };
            let column = keys.last().map_or(0, |key| key.column + key.scale.width());
            if scale.width() != width || ![1, action.horizon()].contains(&scale.rows()) {
                let wanted = format!(
                    "expected statistics of {width} values, once or for {} steps",
                    action.horizon()
                );
                return Err(source.refuse(&wanted));
            }
            if column + width > max_action_dim {
                return Err(known.refuse(&format!(
                    "the network's {max_action_dim} columns end before it"
                )));
            }
            let reference = relative
                .map(|config| Reference::new(config, name, width, modalities))
                .transpose()?;
            keys.push(DecodedKey {
                name: name.clone(),
                column,
                scale,
                reference,
            });
        }
        Ok(Self {
            keys,
            horizon: action.horizon(),
            max_action_dim,
        })
    }

    /// Returns the number of steps of a decoded chunk.
    pub(super) fn horizon(&self) -> usize {
        self.horizon
    }

    /// Returns keys and widths, in the configuration's order.
    pub(super) fn keys(&self) -> Vec<(&str, usize)> {
        self.keys
            .iter()
            .map(|key| (key.name.as_str(), key.scale.width()))
            .collect()
    }

    /// Returns the keys of the actions that are relative to a state.
    pub(super) fn relative_keys(&self) -> Vec<&str> {
        let relative = self.keys.iter().filter(|key| key.reference.is_some());
        relative.map(|key| key.name.as_str()).collect()
    }

    /// Returns the physical actions by key, from `predicted`, `[at least horizon, max_action_dim]`,
    /// and from the raw state on which the prediction is based.
    pub(super) fn decode(
        &self,
        predicted: &[f32],
        state: &BTreeMap<&str, StateSteps>,
    ) -> Result<Vec<KeyActions>, Refusal> {
        let width = self.max_action_dim;
        if !predicted.len().is_multiple_of(width) || predicted.len() / width < self.horizon {
            let wanted = format!("expected {} steps of {width}", self.horizon);
            return Err(input(
                "the network's action",
                format!("{} values", predicted.len()),
                wanted,
            ));
        }
        self.keys
            .iter()
            .map(|key| key.decode(&predicted[..self.horizon * width], width, state))
            .collect()
    }
}

impl DecodedKey {
    fn decode(
        &self,
        rows: &[f32],
        stride: usize,
        state: &BTreeMap<&str, StateSteps>,
    ) -> Result<KeyActions, Refusal> {
        let width = self.scale.width();
        let mut values = Vec::with_capacity(rows.len() / stride * width);
        for (step, row) in rows.chunks_exact(stride).enumerate() {
            let columns = row[self.column..self.column + width].iter().enumerate();
            values.extend(columns.map(|(column, x)| self.scale.denormalize(step, column, *x)));
        }
        if let Some(reference) = &self.reference {
            values = reference.add(&self.name, width, &values, state)?;
        }
        let values = values.into_iter().map(|x| x as f32).collect();
        Ok(KeyActions {
            key: self.name.clone(),
            width,
            values,
        })
    }
}

impl Reference {
    fn new(
        config: &ActionConfig,
        name: &str,
        width: usize,
        modalities: &Modalities,
    ) -> Result<Self, Refusal> {
        let state_key = config.state_key.clone().unwrap_or_else(|| name.to_owned());
        if !modalities.state.keys.contains(&state_key) {
            let wanted = format!(
                "expected one of the states {}",
                modalities.state.keys.join(", ")
            );
            let what = format!("the state that action `{name}` is relative to");
            return Err(input(what, format!("`{state_key}`"), wanted));
        }
        if let Some(format) = config.pose.filter(|format| format.width() != width) {
            let wanted = format!("a pose written as {format:?} has {}", format.width());
            return Err(input(
                format!("action `{name}`"),
                format!("{width} values wide"),
                wanted,
            ));
        }
        Ok(Self {
            state_key,
            pose: config.pose,
        })
    }

    fn add(
        &self,
        name: &str,
        width: usize,
        values: &[f64],
        state: &BTreeMap<&str, StateSteps>,
    ) -> Result<Vec<f64>, Refusal> {
        let what = || {
            format!(
                "state `{}`, which action `{name}` is relative to,",
                self.state_key
            )
        };
        let Some(rows) = state.get(self.state_key.as_str()) else {
            return Err(input(what(), "missing", "it is required"));
        };
        if rows.width() != width {
            let found = format!("{} values wide", rows.width());
            return Err(input(what(), found, format!("expected {width}")));
        }
        let origin: Vec<f64> = rows.last().iter().copied().map(f64::from).collect();
        let Some(format) = self.pose else {
            let steps = values.chunks_exact(width);
            return Ok(steps
                .flat_map(|step| step.iter().zip(&origin).map(|(x, from)| from + x))
                .collect());
        };
        let origin = RigidPose::read(format, &origin);
        let mut out = Vec::with_capacity(values.len());
        for step in values.chunks_exact(width) {
            RigidPose::read(format, step)
                .seen_from(&origin)
                .write(format, &mut out);
        }
        Ok(out)
    }
}
