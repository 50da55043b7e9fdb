//! Converts the observations of a benchmark to GR00T's form.
//!
//! ```text
//! images: {<view>: [H, W, 3]}   by the checkpoint's names, or as many in its order
//! states, state                 a vector with all of the checkpoint's states, or {<state>: [D]}
//! task_description              the instruction
//! ```

use std::collections::VecDeque;

use models::gr00t::processor::Modalities;
use wire::{Array, Key, Value};

use crate::protocols::numbers;
use crate::protocols::observation::{ValidatedRequest, asked, reshaped};
use crate::protocols::vla_eval::picture;
use crate::serve::card::ServedSpec;
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;

/// Maximum number of values of the states together.
const MOST_NUMBERS: usize = 1 << 16;

/// Names of images in an error.
const MOST_NAMES: usize = 20;

/// The last observations of an episode, as they were sent.
#[derive(Debug)]
pub(super) struct PastObservations {
    video: Vec<i64>,
    state: Vec<i64>,
    /// How many observations are kept; 0 if only the current one counts.
    most: usize,
    seen: VecDeque<(Value, usize)>,
    bytes: usize,
}

/// The observations that one inference needs.
#[derive(Clone, Debug)]
pub(super) struct ObservationSteps {
    /// The current observation.
    pub now: Value,
    /// Those whose pictures are needed, in order.
    pub video: Vec<Value>,
    /// Those whose states are needed, in order.
    pub state: Vec<Value>,
}

impl PastObservations {
    /// Keeps as many observations as the checkpoint looks back.
    pub(super) fn new(modalities: &Modalities) -> Self {
        let (video, state) = (&modalities.video, &modalities.state);
        let deltas = video.delta_indices.iter().chain(&state.delta_indices);
        let most = deltas.map(|delta| back(*delta)).max().unwrap_or(0);
        Self {
            video: video.delta_indices.clone(),
            state: state.delta_indices.clone(),
            most,
            seen: VecDeque::new(),
            bytes: 0,
        }
    }

    /// Returns how many bytes of messages are kept.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets the episode.
    pub(super) fn clear(&mut self) {
        self.seen.clear();
        self.bytes = 0;
    }

    /// Adds an observation from a message of `bytes` bytes.
    pub(super) fn push(&mut self, observation: Value, bytes: usize) {
        if self.most == 0 {
            return;
        }
        self.seen.push_back((observation, bytes));
        self.bytes += bytes;
        if self.seen.len() > self.most
            && let Some((_, bytes)) = self.seen.pop_front()
        {
            self.bytes -= bytes;
        }
    }

    /// Returns the observations for an inference. Steps before the episode's first observation
    /// repeat that one, as in an evaluation.
    pub(super) fn steps(&self, now: &Value) -> ObservationSteps {
        let at = |delta: &i64| match back(*delta) {
            0 => now.clone(),
            steps => {
                let found = self.seen.get(self.seen.len().saturating_sub(steps));
                found.map_or_else(|| now.clone(), |(seen, _)| seen.clone())
            }
        };
        ObservationSteps {
            now: now.clone(),
            video: self.video.iter().map(at).collect(),
            state: self.state.iter().map(at).collect(),
        }
    }
}

impl ObservationSteps {
    /// Returns an upper bound of the memory for the pictures once they are decoded. Those with a
    /// longer edge than `longest_edge` are refused, and take none.
    pub(super) fn decoded_bytes(&self, longest_edge: usize) -> usize {
        let images = self
            .video
            .iter()
            .filter_map(|step| match step.get("images") {
                Some(Value::Map(members)) => Some(members),
                _ => None,
            });
        let images = images.flatten();
        let bytes = images.map(|(_, image)| picture::decoded_bytes(image, longest_edge));
        bytes.fold(0, usize::saturating_add)
    }
}

/// Returns how many steps ago this is.
fn back(delta: i64) -> usize {
    usize::try_from(delta.saturating_neg()).unwrap_or(0)
}

/// Converts and checks the observations of one request: all the work that takes time in proportion
/// to its size.
///
/// # Errors
/// Returns [`RequestError`] for the first problem.
pub(super) fn validated(
    steps: &ObservationSteps,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<ValidatedRequest, RequestError> {
    let words = steps.now.get("task_description").cloned();
    let words = words.unwrap_or_else(|| "".into());
    let words = Value::List(vec![Value::List(vec![words])]);
    let observation = Value::map([
        ("video", Value::Map(video(steps, card, limits)?)),
        ("state", Value::Map(states(steps, card)?)),
        (
            "language",
            Value::map([(card.modalities.language_key(), words)]),
        ),
    ]);
    asked(&observation, card, limits)
}

/// Returns each view as `[1, steps, height, width, 3]`.
fn video(
    steps: &ObservationSteps,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<Vec<(Key, Value)>, RequestError> {
    let views = &card.modalities.video.keys;
    let mut pictures: Vec<Vec<Array>> = views.iter().map(|_| Vec::new()).collect();
    for step in &steps.video {
        let found = images(step, views)?;
        for ((view, image), pictures) in views.iter().zip(found).zip(&mut pictures) {
            let read = picture::read(image, limits.max_picture_edge);
            pictures.push(read.map_err(|reason| format!("image `{view}`: {reason}"))?);
        }
    }
    let views = views.iter().zip(&pictures);
    views
        .map(|(view, pictures)| Ok((Key::from(view.as_str()), stacked(view, pictures)?)))
        .collect()
}

/// Returns the image of each view, by name, or else by place, as vla-eval's own server of GR00T
/// does.
fn images<'a>(observation: &'a Value, views: &[String]) -> Result<Vec<&'a Value>, String> {
    let sent: &[(Key, Value)] = match observation.get("images") {
        Some(Value::Map(members)) => members,
        _ => &[],
    };
    let named = |view: &String| sent.iter().rev().find(|(key, _)| key.is(view));
    let by_name: Option<Vec<_>> = views.iter().map(named).collect();
    let found = match by_name {
        Some(found) => found,
        None if sent.len() == views.len() => sent.iter().collect(),
        None => {
            let names = sent.iter().take(MOST_NAMES).map(|(key, _)| key.shown());
            let names: Vec<String> = names.collect();
            let found = match &names[..] {
                [] => "no images".to_owned(),
                names => format!("images {}", names.join(", ")),
            };
            let wanted = views.join(", ");
            return Err(format!(
                "the observation has {found}, expected {wanted}, or as many images in this order"
            ));
        }
    };
    Ok(found.into_iter().map(|(_, image)| image).collect())
}

/// Returns each state as `[1, steps, length]`; those that were not sent are missing.
fn states(steps: &ObservationSteps, card: &ServedSpec) -> Result<Vec<(Key, Value)>, String> {
    let mut found: Vec<(String, Vec<Array>)> = Vec::new();
    for step in &steps.state {
        for (name, numbers) in state(step, card)? {
            let numbers = Array::vector(&numbers);
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(numbers),
                None => found.push((name, vec![numbers])),
            }
        }
    }
    let found = found.into_iter();
    found
        .map(|(name, arrays)| {
            let all = stacked(&name, &arrays)?;
            Ok((Key::Text(name), all))
        })
        .collect()
}

/// Returns the states of one step.
fn state(step: &Value, card: &ServedSpec) -> Result<Vec<(String, Vec<f32>)>, String> {
    let keys = &card.modalities.state.keys;
    let sent = step.get("states").or_else(|| step.get("state"));
    let Some(sent) = sent.filter(|sent| **sent != Value::Nil) else {
        return Ok(Vec::new());
    };
    if let Value::Map(_) = sent {
        let named = |key: &String| Some((key.clone(), values(sent.get(key)?)?));
        return Ok(keys.iter().filter_map(named).collect());
    }
    let whole = values(sent).unwrap_or_default();
    let lengths = |key: &String| {
        let known = card.states.iter().find(|(name, _)| name == key);
        known.and_then(|(_, length)| *length)
    };
    let lengths: Vec<Option<usize>> = match &keys[..] {
        [only] => vec![Some(lengths(only).unwrap_or(whole.len()))],
        keys => keys.iter().map(lengths).collect(),
    };
    let total: Option<usize> = lengths.iter().copied().sum();
    if total != Some(whole.len()) {
        let wanted = keys.iter().zip(&lengths).map(|(key, length)| match length {
            Some(length) => format!("{key} {length}"),
            None => format!("{key} ?"),
        });
        let (found, wanted) = (whole.len(), wanted.collect::<Vec<_>>().join(" + "));
        return Err(format!("the state has {found} values, expected {wanted}"));
    }
    let mut rest = &whole[..];
    let mut parts = Vec::with_capacity(keys.len());
    for (key, length) in keys.iter().zip(lengths) {
        let (part, left) = rest.split_at(length.unwrap_or(0).min(rest.len()));
        parts.push((key.clone(), part.to_vec()));
        rest = left;
    }
    Ok(parts)
}

/// Returns the numbers of an array or of a list that is not too long.
fn values(value: &Value) -> Option<Vec<f32>> {
    let is_long = |array: &Array| array.shape().iter().product::<usize>() > MOST_NUMBERS;
    match value.as_array() {
        Some(array) if is_long(array) => None,
        _ => numbers(value).map(|(_, numbers)| numbers),
    }
}

/// Joins arrays of the same shape: `[1, arrays, …]`.
fn stacked(name: &str, arrays: &[Array]) -> Result<Value, String> {
    let [first, others @ ..] = arrays else {
        return Ok(Value::Nil);
    };
    let shape = [&[1, arrays.len()], first.shape()].concat();
    if others.is_empty() {
        return Ok(reshaped(first, shape));
    }
    if others.iter().any(|other| other.shape() != first.shape()) {
        return Err(format!(
            "`{name}` has another size than in an earlier step of the episode"
        ));
    }
    let data: Vec<u8> = arrays
        .iter()
        .flat_map(|array| &array.data()[..])
        .copied()
        .collect();
    let all = Array::new(first.dtype().clone(), shape, data.into());
    Ok(all.map_or(Value::Nil, Value::Array))
}
