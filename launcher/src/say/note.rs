//! Notes that arise while the plan is made, and are printed before anything is started.

use serde::Serialize;

use crate::say::{self, Level};

/// A note of the plan, which is serialized as its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Note {
    /// What it says.
    pub text: String,
    level: Level,
}

impl Note {
    /// Returns a note about a rule that took effect, or something that was inferred.
    pub fn info(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            level: Level::Info,
        }
    }

    /// Returns a warning about something ignored or harmful.
    pub fn warning(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            level: Level::Warning,
        }
    }

    /// Prints the note.
    pub fn say(&self) {
        say::say(self.level, &self.text);
    }
}

impl From<Note> for String {
    fn from(note: Note) -> String {
        note.text
    }
}
