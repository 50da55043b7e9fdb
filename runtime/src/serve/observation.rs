//! Converts the values of a message to the processor's types, without copying arrays, and checks
//! the observations of both protocols.

use crate::policy::served::{Noise, Question, ServedSpec};
use crate::serve::limits::{LimitExceeded, RequestLimits, shortened};
use crate::serve::stats::Stats;
use gr00t::processor::{Array, Modalities, Object, validate};
use wire::Value;

/// A checked request for actions, within the limits.
#[derive(Debug)]
pub struct ValidatedRequest {
    /// How many observations it holds.
    pub rows: usize,
    /// The inputs of the policy, without anything else that was sent.
    pub observation: Object,
    /// Noise of each row, if the client chose it.
    pub noise: Option<Vec<Noise>>,
}

impl ValidatedRequest {
    /// Returns the question for the policy. `draw` supplies the noise for the rows if the client
    /// chose none.
    pub fn question(self, draw: impl FnOnce(usize) -> Vec<Noise>) -> Question {
        let noise = self.noise.unwrap_or_else(|| draw(self.rows));
        Question {
            observation: self.observation,
            noise,
        }
    }
}

/// The reason why a message is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The message cannot be decoded.
    #[error("{0}")]
    Unreadable(String),
    /// The request exceeds a limit.
    #[error(transparent)]
    Limit(#[from] LimitExceeded),
    /// The request asks for something unknown, or is malformed.
    #[error("{0}")]
    Wrong(String),
}

impl From<String> for RequestError {
    fn from(text: String) -> Self {
        Self::Wrong(text)
    }
}

impl RequestError {
    /// Counts the error and returns the text for the client.
    pub fn counted(self, stats: &Stats) -> String {
        match &self {
            Self::Unreadable(_) => stats.unreadable(),
            Self::Limit(_) => stats.limited(),
            Self::Wrong(_) => {}
        }
        shortened(self.to_string())
    }
}

/// Checks an observation, with the order and the messages of the reference, and then against the
/// limits.
///
/// # Errors
/// Returns [`RequestError`] for the first problem.
pub fn asked(
    observation: &Object,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<ValidatedRequest, RequestError> {
    validate(observation, &card.modalities).map_err(|err| err.to_string())?;
    let rows = limits.check(observation, &card.modalities)?;
    Ok(ValidatedRequest {
        rows,
        observation: needed(observation, &card.modalities),
        noise: None,
    })
}

/// Returns the members of an observation that the policy uses. They are sliced for each batch.
fn needed(observation: &Object, modalities: &Modalities) -> Object {
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
        (name.to_owned(), Object::Map(members.collect()))
    });
    Object::Map(parts.into())
}

/// Converts a value to Python's types; arrays share the memory of the message.
pub fn object(value: &Value) -> Object {
    match value {
        Value::Nil | Value::Ext(..) => Object::None,
        Value::Bool(flag) => Object::Bool(*flag),
        Value::Int(number) => Object::Int(*number),
        Value::Large(number) => Object::Int(i64::try_from(*number).unwrap_or(i64::MAX)),
        Value::Float(number) => Object::Float(*number),
        Value::Text(text) => Object::Text(text.clone()),
        Value::Bytes(bytes) => Object::Bytes(bytes.clone()),
        Value::List(items) => Object::List(items.iter().map(object).collect()),
        Value::Map(members) => Object::Map(
            members
                .iter()
                .map(|(key, value)| (key.shown(), object(value)))
                .collect(),
        ),
        Value::Array(array) | Value::Scalar(array) => self::array(array, array.shape()),
    }
}

/// An array with other edges around the same numbers.
pub fn array(array: &wire::Array, shape: &[usize]) -> Object {
    let dtype = array.dtype();
    // An array of the wire format has as many bytes as its shape needs, and so does any shape with
    // the same number of elements.
    Array::new(&dtype.name(), dtype.size(), shape, array.data().clone())
        .map_or(Object::None, Object::Array)
}
