//! Input that is refused: one type, since everybody prints it and nobody decides by it; and what a
//! misspelt name probably means.

use std::fmt::Display;
use std::path::Path;

use serde_json::Value;

use crate::count::listed;

/// Number of known names that are listed.
const NAMED: usize = 40;

/// Input that is refused: where it stands, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{reason}", before(place))]
pub struct Refusal {
    /// File, job, field or option, for example `job 3 (push) field num_envs`; empty if the reason
    /// says it.
    place: String,
    reason: String,
}

fn before(place: &str) -> String {
    if place.is_empty() {
        return String::new();
    }
    format!("{place}: ")
}

impl Refusal {
    /// Refuses what stands at a place.
    pub fn at(place: impl Display, reason: impl Display) -> Self {
        Self {
            place: place.to_string(),
            reason: reason.to_string(),
        }
    }

    /// Refuses a file, or what is in it.
    pub fn in_file(path: &Path, reason: impl Display) -> Self {
        Self::at(format_args!("`{}`", path.display()), reason)
    }

    /// Refuses with a sentence that says the place itself.
    pub fn new(reason: impl Display) -> Self {
        Self::at("", reason)
    }

    /// Refuses a value: `found 0, expected a whole number above 0`.
    pub fn found(place: impl Display, found: &Value, wanted: impl Display) -> Self {
        Self::at(place, format_args!("found {}, {wanted}", show(found)))
    }

    /// Refuses an unknown name with the nearest known one, or with all of them. `noun` is what the
    /// name is of: `field`, `job`.
    pub fn unknown(place: impl Display, noun: &str, name: &str, known: &[&str]) -> Self {
        let hint = match most_similar(name, known.iter().copied(), LIKE_FIELD) {
            Some(meant) => format!("; did you mean `{meant}`?"),
            None if known.is_empty() => String::new(),
            None => format!("; expected one of {}", listed(known, NAMED)),
        };
        Self::at(place, format_args!("unknown {noun} `{name}`{hint}"))
    }

    /// Says what the place is inside of: a file, a job.
    #[must_use]
    pub fn inside(self, outer: impl Display) -> Self {
        Self::at(outer, self)
    }
}

/// Why arguments are refused.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// They are wrong or ask for help; clap's text and exit code are to be used.
    #[error("{0}")]
    Usage(#[from] clap::Error),
    /// What they name cannot be used.
    #[error(transparent)]
    Input(#[from] Refusal),
}

/// Formats a value for an error message: short and on one line.
pub fn show(value: &Value) -> String {
    match value {
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Object(_) => "an object".to_owned(),
        other => other.to_string().chars().take(80).collect(),
    }
}

/// Returns the known name that resembles `found` most, if the similarity (Jaro-Winkler, from 0 to
/// 1) is above `least`. Of names that are equally similar, the first counts.
///
/// `least` depends on what a wrong suggestion costs: [`LIKE_FIELD`] if the error is certain and the name
/// only helps, more if the similarity decides whether there is an error.
pub fn most_similar<'a>(
    found: &str,
    known: impl IntoIterator<Item = &'a str>,
    least: f64,
) -> Option<&'a str> {
    let (mut best, mut similarity) = (None, least);
    for name in known {
        let this = strsim::jaro_winkler(name, found);
        if this > similarity {
            (best, similarity) = (Some(name), this);
        }
    }
    best
}

/// Returns ` (did you mean `name`?)` for a name that users choose, or nothing if none is similar
/// enough.
pub fn meant<'a>(found: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let close = most_similar(found, known, LIKE_NAME);
    close.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

/// Similarity above which a field is suggested for an unknown one.
pub const LIKE_FIELD: f64 = 0.7;

/// Similarity above which a name that users choose, or one of many, is suggested.
pub const LIKE_NAME: f64 = 0.85;

/// Similarity above which a name that may be somebody else's is taken for a misspelt one of ours.
pub const MISSPELT: f64 = 0.94;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_refusal_says_place_and_reason_once_each() {
        let refusal = Refusal::at("field num_envs", "it is missing");
        let inside = refusal.inside("job 3 (push)").inside("`jobs.json`");
        assert_eq!(
            inside.to_string(),
            "`jobs.json`: job 3 (push): field num_envs: it is missing"
        );
        assert_eq!(Refusal::new("no jobs").to_string(), "no jobs");
    }

    #[test]
    fn a_value_is_shown_short_and_on_one_line() {
        let shown = |value| Refusal::found("field a", &value, "expected a flag").to_string();
        let told = "field a: found a list of 2, expected a flag";
        assert_eq!(shown(json!(["x\ny", 1])), told);
        assert!(shown(json!("x\n".repeat(1000))).len() < 120);
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_or_all() {
        let told = |name, known: &[&str]| Refusal::unknown("job 1", "field", name, known);
        assert_eq!(
            told("num_env", &["num_envs", "seed"]).to_string(),
            "job 1: unknown field `num_env`; did you mean `num_envs`?"
        );
        assert_eq!(
            told("zzz", &["num_envs", "seed"]).to_string(),
            "job 1: unknown field `zzz`; expected one of num_envs, seed"
        );
        assert_eq!(told("zzz", &[]).to_string(), "job 1: unknown field `zzz`");
    }

    #[test]
    fn the_most_similar_name_counts_and_the_first_of_equals() {
        let known = ["policy_type", "policy_args", "name"];
        assert_eq!(
            most_similar("polcy", known, LIKE_FIELD),
            Some("policy_type")
        );
        let found = most_similar("policy_arg", known, LIKE_FIELD);
        assert_eq!(found, Some("policy_args"));
        assert_eq!(most_similar("seed", known, LIKE_FIELD), None);
        assert_eq!(most_similar("seed", [], LIKE_FIELD), None);
    }
}
