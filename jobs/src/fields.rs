//! Takes typed fields out of a JSON object, so that every error names the place of its field.

use serde_json::{Map, Value};

use crate::refusal::Refusal;
use crate::similar::{self, most_similar};

/// A refused field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct FieldError {
    /// Job and field, for example `job 3 (push) field num_envs`; the job alone for an unknown field.
    pub place: String,
    /// The unknown field, which the reason names.
    pub unknown: Option<String>,
    /// What was found and what is expected.
    pub reason: String,
}

impl From<FieldError> for Refusal {
    fn from(err: FieldError) -> Self {
        Self::at(err.place, err.reason)
    }
}

/// The fields of a JSON object that were not taken yet, and the place of the object.
pub(crate) struct FileFields<'a> {
    place: String,
    left: Map<String, Value>,
    object: &'a Map<String, Value>,
    /// All fields that are read, if they are known beforehand.
    known: &'static [&'static str],
}

impl<'a> FileFields<'a> {
    pub(crate) fn new(place: &str, value: &'a Value) -> Result<Self, FieldError> {
        let Value::Object(object) = value else {
            let reason = format!("found {}, expected an object", show(Some(value)));
            return Err(FieldError {
                place: place.to_owned(),
                unknown: None,
                reason,
            });
        };
        Ok(Self {
            place: place.to_owned(),
            left: object.clone(),
            object,
            known: &[],
        })
    }

    /// Says which fields are read, so that a missing one may be found misspelt.
    pub(crate) fn know(&mut self, known: &'static [&'static str]) {
        self.known = known;
    }

    pub(crate) fn place(&self, field: &str) -> String {
        format!("{} field {field}", self.place)
    }

    pub(crate) fn take(&mut self, field: &str) -> Option<&'a Value> {
        self.left.shift_remove(field);
        self.object.get(field)
    }

    /// Returns whether a field is present and not `null`, whether it was taken or not.
    pub(crate) fn has(&self, field: &str) -> bool {
        self.object.get(field).is_some_and(|value| !value.is_null())
    }

    pub(crate) fn require(&mut self, field: &str) -> Result<&'a Value, FieldError> {
        self.take(field).ok_or_else(|| self.missing(field))
    }

    /// Returns the error for a missing field, which may be there under a misspelt name.
    fn missing(&self, field: &str) -> FieldError {
        let is_meant =
            |name: &&str| !self.known.contains(name) && meant_by(name, self.known) == Some(field);
        match self.left().find(is_meant) {
            Some(misspelt) => self.unknown(misspelt, self.known),
            None => self.refuse(field, "it is missing"),
        }
    }

    pub(crate) fn string(&mut self, field: &str) -> Result<String, FieldError> {
        match self.require(field)? {
            Value::String(text) => Ok(text.clone()),
            other => Err(self.wrong(field, Some(other), "expected a string")),
        }
    }

    pub(crate) fn optional_string(&mut self, field: &str) -> Result<Option<String>, FieldError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            other => Err(self.wrong(field, other, "expected a string or null")),
        }
    }

    pub(crate) fn bool(&mut self, field: &str) -> Result<Option<bool>, FieldError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            other => Err(self.wrong(field, other, "expected true or false")),
        }
    }

    pub(crate) fn whole(&mut self, field: &str) -> Result<Option<u64>, FieldError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) if number.is_u64() => Ok(number.as_u64()),
            other => Err(self.wrong(field, other, "expected a whole number of at least 0")),
        }
    }

    pub(crate) fn positive(&mut self, field: &str) -> Result<Option<u64>, FieldError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) if number > 0 => Ok(Some(number)),
                _ => Err(self.wrong(field, Some(value), "expected a whole number above 0")),
            },
        }
    }

    pub(crate) fn at_most(&mut self, field: &str, limit: u64) -> Result<Option<u64>, FieldError> {
        match self.positive(field)? {
            Some(number) if number > limit => Err(self.refuse(
                field,
                &format!("found {number}, expected a whole number up to {limit}"),
            )),
            number => Ok(number),
        }
    }

    pub(crate) fn object(&mut self, field: &str) -> Result<Option<Map<String, Value>>, FieldError> {
        match self.take(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object.clone())),
            other => Err(self.wrong(field, other, "expected an object")),
        }
    }

    /// Returns the names of the remaining fields, in file order.
    pub(crate) fn left(&self) -> impl Iterator<Item = &str> {
        self.left.keys().map(String::as_str)
    }

    /// Returns the remaining fields, in file order.
    pub(crate) fn rest(self) -> Map<String, Value> {
        self.left
    }

    /// Refuses the first remaining field.
    pub(crate) fn finish(&self, known: &[&str]) -> Result<(), FieldError> {
        self.left
            .keys()
            .next()
            .map_or(Ok(()), |field| Err(self.unknown(field, known)))
    }

    /// Returns the error for an unknown name, with the nearest known one.
    pub(crate) fn unknown(&self, field: &str, known: &[&str]) -> FieldError {
        let hint = match meant_by(field, known) {
            Some(name) => format!("; did you mean `{name}`?"),
            None if known.is_empty() => String::new(),
            None => format!("; expected one of {}", known.join(", ")),
        };
        FieldError {
            place: self.place.clone(),
            unknown: Some(field.to_owned()),
            reason: format!("unknown field `{field}`{hint}"),
        }
    }

    pub(crate) fn refuse(&self, field: &str, reason: &str) -> FieldError {
        FieldError {
            place: self.place(field),
            unknown: None,
            reason: reason.to_owned(),
        }
    }

    /// Returns the error for the object itself.
    pub(crate) fn refuse_all(&self, reason: &str) -> FieldError {
        FieldError {
            place: self.place.clone(),
            unknown: None,
            reason: reason.to_owned(),
        }
    }

    pub(crate) fn wrong(&self, field: &str, found: Option<&Value>, wanted: &str) -> FieldError {
        self.refuse(field, &format!("found {}, {wanted}", show(found)))
    }
}

/// Returns the known field that an unknown one probably means.
fn meant_by<'a>(field: &str, known: &[&'a str]) -> Option<&'a str> {
    most_similar(field, known.iter().copied(), similar::FIELD)
}

/// Formats a value for an error message: short and on one line.
fn show(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(Value::Array(items)) => format!("a list of {}", items.len()),
        Some(Value::Object(_)) => "an object".to_owned(),
        Some(other) => other.to_string().chars().take(80).collect(),
    }
}
