//! Checks the observations of all protocols, and takes them apart without copying pictures.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use wire::{Array, Value};

use crate::env::{Frame, Observation};
use crate::policy::{RowNoise, Window};
use crate::protocols::gr00t::validation::{Inputs, validate};
use crate::serve::card::ServedSpec;
use crate::serve::request::{RequestError, RequestLimits};

/// A checked request for actions, within the limits.
#[derive(Debug)]
pub struct ValidatedRequest {
    /// The observations that the policy sees, without anything else that was sent.
    pub rows: Vec<Window>,
    /// Noise of each row, if the client chose it.
    pub noise: Option<Vec<RowNoise>>,
}

/// Checks an observation, with the order and the messages of the reference, and then against the
/// limits.
///
/// # Errors
/// Returns [`RequestError`] for the first problem.
pub fn asked(
    observation: &Value,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<ValidatedRequest, RequestError> {
    let inputs = validate(observation, &card.keys.modalities).map_err(RequestError::new)?;
    limits.check(&inputs)?;
    if card.interface.is_some() {
        for (camera, (_, array)) in card.cameras().zip(&inputs.video) {
            let wanted = [camera.height as usize, camera.width as usize, 3];
            sized("picture of camera", &camera.name, array, &wanted)?;
        }
        for ((name, length), (_, array)) in card.keys.states.iter().zip(&inputs.state) {
            sized("state", name, array, length.as_slice())?;
        }
    }
    let steps = [&card.keys.modalities.video, &card.keys.modalities.state];
    let steps = steps.map(|modality| modality.horizon().max(1));
    let rows = windows(&inputs, steps[0].max(steps[1]));
    Ok(ValidatedRequest { rows, noise: None })
}

/// Returns the observations of each row. Pictures share the memory of the message.
fn windows(inputs: &Inputs, steps: usize) -> Vec<Window> {
    let rows = inputs.language.len();
    let window = |(row, words): (usize, &&str)| {
        let language: Arc<str> = (*words).into();
        let seen = (0..steps).map(|step| Observation {
            // The last steps of shorter histories are now, too.
            video: of_step(&inputs.video, [rows, row], steps - step, frame),
            state: of_step(&inputs.state, [rows, row], steps - step, numbers),
            language: Arc::clone(&language),
            ..Observation::default()
        });
        Window::of(seen)
    };
    inputs
        .language
        .iter()
        .enumerate()
        .filter_map(window)
        .collect()
}

/// Returns a row's part of each array `[rows, steps, …]` at a step, which is counted from the end.
fn of_step<T>(
    arrays: &[(&str, &Array)],
    [rows, row]: [usize; 2],
    from_end: usize,
    read: impl Fn(&Array, Bytes) -> T,
) -> BTreeMap<String, T> {
    let part = |(key, array): &(&str, &Array)| {
        let steps = array.shape()[1];
        let size = array.data().len().checked_div(rows * steps).unwrap_or(0);
        let place = row * steps + steps.checked_sub(from_end)?;
        let bytes = array.data().slice(place * size..(place + 1) * size);
        Some(((*key).to_owned(), read(array, bytes)))
    };
    arrays.iter().filter_map(part).collect()
}

fn frame(array: &Array, rgb: Bytes) -> Frame {
    let edge = |axis: usize| u32::try_from(array.shape()[axis]).unwrap_or(u32::MAX);
    let [height, width] = [2, 3].map(edge);
    Frame {
        height,
        width,
        rgb: rgb.into(),
    }
}

fn numbers(_: &Array, bytes: Bytes) -> Vec<f32> {
    let values = bytes.as_chunks::<4>().0.iter();
    values.map(|value| f32::from_le_bytes(*value)).collect()
}

/// Checks the size of a step in an array of an interface.
fn sized(
    what: &'static str,
    name: &str,
    array: &Array,
    wanted: &[usize],
) -> Result<(), RequestError> {
    let found = array.shape();
    if found[2..] == *wanted {
        return Ok(());
    }
    let wanted = [&found[..2], wanted].concat();
    Err(RequestError::new(format_args!(
        "{what} {name} has the shape {found:?}, expected {wanted:?} ([rows, steps, …], as in the \
         interface of this server)"
    )))
}

/// Returns an array with other edges around the same numbers.
pub fn reshaped(array: &Array, shape: Vec<usize>) -> Value {
    // An array has as many bytes as its shape needs, and so does any shape with the same number of
    // elements.
    let array = Array::new(array.dtype().clone(), shape, array.data().clone());
    array.map_or(Value::Nil, Value::Array)
}

/// Divides the numbers of all states, in order; `None` if a length is not known, or they do not add
/// up.
pub fn divided<'a>(whole: &'a [f32], lengths: &[Option<usize>]) -> Option<Vec<&'a [f32]>> {
    let mut rest = whole;
    let part = |length: &Option<usize>| {
        let (part, left) = rest.split_at_checked((*length)?)?;
        rest = left;
        Some(part)
    };
    let parts: Option<Vec<_>> = lengths.iter().map(part).collect();
    parts.filter(|_| rest.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PolicyFacts;
    use crate::policy::tests::env_with;

    /// Returns a request with two rows of an interface with a camera and a state, and what its
    /// policy sees.
    fn taken(state: Array) -> Result<Vec<Window>, String> {
        let mut env = env_with(&["front"], [1, 1]);
        env.interface.state = vec![("x".to_owned(), 1)];
        let facts = PolicyFacts {
            needs_video: true,
            looks_back: 1,
            chunk_length: 1,
            ..PolicyFacts::default()
        };
        let card = ServedSpec::of_interface(facts, env.interface);
        assert_eq!(card.keys.modalities.video.delta_indices, [-1, 0]);
        let shape = [2, 2, 1, 1, 3];
        let pixels = (0..12u8).map(|byte| byte / 3).collect::<Vec<_>>();
        let front = Array::of_u8(&shape, pixels.into());
        let texts = ["go", "stop"].map(|text| vec![text.into()].into());
        let observation = Value::map([
            ("video", Value::map([("front", front.into())])),
            ("state", Value::map([("x", state.into())])),
            ("language", Value::map([("task", texts.to_vec().into())])),
        ]);
        let limits = RequestLimits {
            max_rows: 2,
            max_picture_edge: 1,
        };
        let asked = asked(&observation, &card, &limits).map_err(|err| err.to_string())?;
        Ok(asked.rows)
    }

    #[test]
    fn a_row_has_the_steps_that_its_client_sent() {
        let rows = taken(Array::of_f32(&[2, 2, 1], &[0.0, 1.0, 2.0, 3.0])).unwrap();
        let seen = |row: &Window| {
            let step = |seen: &Observation| (seen.state["x"][0], seen.video["front"].rgb[0]);
            let steps = row.at(&[-1, 0]).into_iter().map(step);
            (steps.collect::<Vec<_>>(), row.now().language.to_string())
        };
        assert_eq!(seen(&rows[0]), (vec![(0.0, 0), (1.0, 1)], "go".to_owned()));
        assert_eq!(
            seen(&rows[1]),
            (vec![(2.0, 2), (3.0, 3)], "stop".to_owned())
        );
    }

    #[test]
    fn an_observation_of_another_size_is_refused_by_name() {
        let refused = taken(Array::of_f32(&[2, 2, 2], &[0.0; 8])).unwrap_err();
        let wanted = "state x has the shape [2, 2, 2], expected [2, 2, 1] ([rows, steps, …]";
        assert!(refused.starts_with(wanted), "{refused}");
    }
}
