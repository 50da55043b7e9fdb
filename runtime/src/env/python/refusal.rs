//! The words in which an argument of a job is refused.

use jobs::similar::most_similar;
use serde_json::Value;

use crate::env::EnvError;

/// Similarity above which a name is suggested.
const NEAR: f64 = 0.8;

/// Returns the text that a key is unknown, with the nearest known key.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    match most_similar(key, known.iter().copied(), NEAR) {
        Some(name) => format!("but there is no such field; did you mean `{name}`?"),
        None => format!(
            "but there is no such field; expected one of {}",
            known.join(", ")
        ),
    }
}

/// Returns the error that `field` is `found`; `wanted` says what is accepted, as a clause.
pub(super) fn refuse(field: &str, found: &Value, wanted: &str) -> EnvError {
    EnvError::Argument {
        field: field.to_owned(),
        found: found.to_string(),
        wanted: wanted.to_owned(),
    }
}
