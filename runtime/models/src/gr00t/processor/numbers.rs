//! Encodes states of one embodiment, and decodes the network's actions into physical ones, without
//! pictures and text.

use std::collections::BTreeMap;
use std::path::Path;

use jobs::refusal::Refusal;

use crate::error::{differs, input};
use crate::gr00t::processor::config::{ProcessorConfig, Scaling};
use crate::gr00t::processor::embodiment;
use crate::gr00t::processor::modality::{
    ActionConfig, Modalities, ModalityConfig, PoseFormat, Representation,
};
use crate::gr00t::processor::pose::RigidPose;
use crate::gr00t::processor::scale::{Statistics, ValueScale};
use crate::gr00t::processor::sine::sin_cos;
use crate::gr00t::processor::{KeyActions, StateSteps};

/// The state encoder and action decoder of one embodiment.
#[derive(Clone, Debug)]
pub struct StateActionCodec {
    states: Vec<EncodedKey>,
    pub(super) state_steps: usize,
    scaling: Scaling,
    actions: Vec<DecodedKey>,
    horizon: usize,
}

/// A state vector, and how it is encoded.
#[derive(Clone, Debug)]
struct EncodedKey {
    name: String,
    /// `None`: the sines, then the cosines, which is twice the width.
    scale: Option<ValueScale>,
}

/// An action vector, and how it is decoded.
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
            scaling: config.scaling,
            actions: DecodedKey::all(modalities, &statistics, tag, &config.scaling)?,
            horizon: modalities.action.horizon(),
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
        let scaling = &self.scaling;
        let most = scaling.max_state_dim;
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

    /// Returns the number of steps of a decoded action chunk.
    pub fn action_horizon(&self) -> usize {
        self.horizon
    }

    /// Returns the keys and widths of a decoded action chunk, in the order of
    /// [`StateActionCodec::decode`].
    pub fn action_keys(&self) -> Vec<(String, usize)> {
        let keys = self.actions.iter();
        keys.map(|key| (key.name.clone(), key.scale.width()))
            .collect()
    }

    /// Returns the keys of the actions that are relative to a state.
    pub fn relative_keys(&self) -> Vec<&str> {
        let relative = self.actions.iter().filter(|key| key.reference.is_some());
        relative.map(|key| key.name.as_str()).collect()
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
        let (width, values) = (self.scaling.max_action_dim, predicted.len());
        if !values.is_multiple_of(width) || values / width < self.horizon {
            let wanted = format_args!("expected {} steps of {width}", self.horizon);
            let found = format_args!("{values} values");
            return Err(input("the network's action", found, wanted));
        }
        let rows = &predicted[..self.horizon * width];
        let keys = self.actions.iter();
        keys.map(|key| key.decode(rows, width, state)).collect()
    }
}

impl EncodedKey {
    fn all(
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

impl DecodedKey {
    fn all(
        modalities: &Modalities,
        statistics: &Statistics,
        tag: &str,
        scaling: &Scaling,
    ) -> Result<Vec<Self>, Refusal> {
        let (action, most) = (&modalities.action, scaling.max_action_dim);
        let mut keys: Vec<Self> = Vec::new();
        for (index, name) in action.keys.iter().enumerate() {
            let own = action.actions.as_ref().map(|actions| &actions[index]);
            let relative = own
                .filter(|own| own.rep == Representation::Relative && scaling.use_relative_action);
            let known = statistics.key([tag, "action", name])?;
            let width = known.table("min").or_else(|_| known.table("mean"))?.width;
            let source = match relative {
                Some(_) => statistics.key([tag, "relative_action", name])?,
                None => known.clone(),
            };
            let scale = match relative {
                _ if action.has_mean_std(name) => ValueScale::spread(&source)?,
                // With or without percentiles.
                Some(_) => ValueScale::range(&source, ["min", "max"])?,
                None => ValueScale::range(&source, scaling.range())?,
            };
            let steps = action.horizon();
            let wanted =
                format!("expected statistics of {width} values, once or for {steps} steps");
            let holds = scale.width() == width && [1, steps].contains(&scale.rows());
            source.need(holds, wanted)?;
            let column = keys.last().map_or(0, |key| key.column + key.scale.width());
            let wanted = format_args!("the network's {most} columns end before it");
            known.need(column + width <= most, wanted)?;
            let reference = relative.map(|own| Reference::new(own, name, width, modalities));
            keys.push(Self {
                name: name.clone(),
                column,
                scale,
                reference: reference.transpose()?,
            });
        }
        Ok(keys)
    }

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
        let (states, pose) = (&modalities.state.keys, config.pose());
        if !states.contains(&state_key) {
            let what = format_args!("the state that action `{name}` is relative to");
            let wanted = format_args!("expected one of the states {}", states.join(", "));
            return Err(input(what, format_args!("`{state_key}`"), wanted));
        }
        if let Some(format) = pose.filter(|format| format.width() != width) {
            let (what, found) = (format!("action `{name}`"), format!("{width} values wide"));
            let wanted = format_args!("a pose written as {format:?} has {}", format.width());
            return Err(input(what, found, wanted));
        }
        Ok(Self { state_key, pose })
    }

    fn add(
        &self,
        name: &str,
        width: usize,
        values: &[f64],
        state: &BTreeMap<&str, StateSteps>,
    ) -> Result<Vec<f64>, Refusal> {
        let key = self.state_key.as_str();
        let what = format_args!("state `{key}`, which action `{name}` is relative to,");
        let Some(rows) = state.get(key) else {
            return Err(input(what, "missing", "it is required"));
        };
        differs(what, [rows.width(), width], "values wide")?;
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
