//! The result of a check.

use serde::{Serialize, Serializer};

/// How serious a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// As it should be.
    Ok,
    /// Good to know; nothing is wrong.
    Note,
    /// Works, but badly, or not in all cases.
    Warning,
    /// Does not work.
    Failed,
}

impl Health {
    /// All grades, the best first.
    pub(super) const ALL: [Self; 4] = [Self::Ok, Self::Note, Self::Warning, Self::Failed];

    /// Returns the word for output.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl Serialize for Health {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// One line of the output: what was found, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Diagnosis {
    /// Name of the check.
    pub(super) name: String,
    #[serde(rename = "outcome")]
    pub(super) health: Health,
    /// What was found, in one line, with units.
    pub(super) found: String,
    /// What to do, if anything is to be done.
    #[serde(rename = "do")]
    pub(super) remedy: Option<String>,
}

impl Diagnosis {
    pub(super) fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            health: Health::Ok,
            found: found.into(),
            remedy: None,
        }
    }

    pub(super) fn note(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            health: Health::Note,
            ..Self::ok(name, found)
        }
    }

    pub(super) fn warning(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            health: Health::Warning,
            remedy: Some(remedy.into()),
            ..Self::ok(name, found)
        }
    }

    pub(super) fn failed(
        name: impl Into<String>,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            health: Health::Failed,
            ..Self::warning(name, found, remedy)
        }
    }
}

/// Returns whether nothing failed.
pub(super) fn is_healthy(all: &[Diagnosis]) -> bool {
    all.iter()
        .all(|diagnosis| diagnosis.health != Health::Failed)
}
