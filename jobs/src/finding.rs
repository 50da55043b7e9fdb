//! What `rrun doctor` finds, one line each. Only the rank binary has libtorch, MuJoCo and CUDA, so
//! it answers questions about them.
//!
//! `rrun-rank probe egl` prints its findings on standard output, as one line of JSON. Anything else
//! there belongs to libraries.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// The first word of the command line of a question to the rank binary.
pub const PROBE: &str = "probe";

/// How serious a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// Works, but badly, or not in all cases.
    Warning,
    /// Does not work.
    Failed,
}

impl Grade {
    /// All grades, the best first.
    pub const ALL: [Self; 4] = [Self::Ok, Self::Note, Self::Warning, Self::Failed];
}

/// One line of the output: what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the check.
    pub name: String,
    /// How serious it is.
    #[serde(rename = "outcome")]
    pub grade: Grade,
    /// What was found, in one line, with units.
    pub found: String,
    /// What to do, if anything is to be done.
    #[serde(rename = "do")]
    pub remedy: Option<String>,
}

impl Finding {
    /// Returns a finding about what is as it should be.
    pub fn ok(name: impl Display, found: impl Display) -> Self {
        Self {
            name: name.to_string(),
            grade: Grade::Ok,
            found: found.to_string(),
            remedy: None,
        }
    }

    /// Returns a finding that is good to know.
    pub fn note(name: impl Display, found: impl Display) -> Self {
        Self {
            grade: Grade::Note,
            ..Self::ok(name, found)
        }
    }

    /// Returns a finding about what works badly.
    pub fn warning(name: impl Display, found: impl Display, remedy: impl Display) -> Self {
        Self {
            grade: Grade::Warning,
            remedy: Some(remedy.to_string()),
            ..Self::ok(name, found)
        }
    }

    /// Returns a finding about what does not work.
    pub fn failed(name: impl Display, found: impl Display, remedy: impl Display) -> Self {
        Self {
            grade: Grade::Failed,
            ..Self::warning(name, found, remedy)
        }
    }
}
