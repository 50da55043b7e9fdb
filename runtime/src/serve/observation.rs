//! Converts the values of a message to the processor's types, without copying arrays, and checks
//! the observations of both protocols.

use crate::policy::served::{Noise, PolicyRequest, ServedSpec};
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;
use gr00t::client::{PyArray, PyObject, validate};
use gr00t::processor::Modalities;
use wire::Value;

/// A checked request for actions, within the limits.
#[derive(Debug)]
pub struct ValidatedRequest {
    /// How many observations it holds.
    pub rows: usize,
    /// The inputs of the policy, without anything else that was sent.
    pub observation: PyObject,
    /// Noise of each row, if the client chose it.
    pub noise: Option<Vec<Noise>>,
}

impl ValidatedRequest {
    /// Returns the request for the policy. `draw` supplies the noise for the rows if the client
    /// chose none.
    pub fn request(self, draw: impl FnOnce(usize) -> Vec<Noise>) -> PolicyRequest {
        let noise = self.noise.unwrap_or_else(|| draw(self.rows));
        PolicyRequest {
            observation: self.observation,
            noise,
        }
    }
}

/// Checks an observation, with the order and the messages of the reference, and then against the
/// limits.
///
/// # Errors
/// Returns [`RequestError`] for the first problem.
pub fn asked(
    observation: &PyObject,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<ValidatedRequest, RequestError> {
    validate(observation, &card.modalities).map_err(RequestError::new)?;
    let rows = limits.check(observation, &card.modalities)?;
    Ok(ValidatedRequest {
        rows,
        observation: needed(observation, &card.modalities),
        noise: None,
    })
}

/// Returns the members of an observation that the policy uses. They are sliced for each batch.
fn needed(observation: &PyObject, modalities: &Modalities) -> PyObject {
    let language = [modalities.language_key().to_owned()];
    let parts = [
        ("video", &modalities.video.keys[..]),
        ("state", &modalities.state.keys),
        ("language", &language),
    ];
    let parts = parts.map(|(name, keys)| {
        let part = observation.get(name);
        let members = keys
            .iter()
            .filter_map(|key| Some((key.clone(), part?.get(key)?.clone())));
        (name.to_owned(), PyObject::Map(members.collect()))
    });
    PyObject::Map(parts.into())
}

/// Converts a value to Python's types; arrays share the memory of the message.
pub fn object(value: &Value) -> PyObject {
    match value {
        Value::Nil => PyObject::None,
        Value::Bool(flag) => PyObject::Bool(*flag),
        Value::Int(number) => PyObject::Int(*number),
        Value::Large(number) => PyObject::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Float(number) => PyObject::Float(*number),
        Value::Text(text) => PyObject::Text(text.clone()),
        Value::Bytes(bytes) => PyObject::Bytes(bytes.clone()),
        Value::List(items) => PyObject::List(items.iter().map(object).collect()),
        Value::Map(members) => PyObject::Map(
            members
                .iter()
                .map(|(key, value)| (key.shown(), object(value)))
                .collect(),
        ),
        Value::Array(array) => self::array(array, array.shape()),
    }
}

/// An array with other edges around the same numbers.
pub fn array(array: &wire::Array, shape: &[usize]) -> PyObject {
    let dtype = array.dtype();
    // An array of the wire format has as many bytes as its shape needs, and so does any shape with
    // the same number of elements.
    PyArray::new(&dtype.name(), dtype.size(), shape, array.data().clone())
        .map_or(PyObject::None, PyObject::Array)
}
