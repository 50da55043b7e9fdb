//! The words in which an argument of a job is refused.

use serde_json::Value;

use crate::env::EnvError;

/// Returns the text that a key is unknown, with the nearest known key.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|name| (strsim::jaro_winkler(name, key), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((close, name)) if close > 0.8 => format!("which is unknown; did you mean `{name}`?"),
        _ => format!("which is unknown; expected one of {}", known.join(", ")),
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
