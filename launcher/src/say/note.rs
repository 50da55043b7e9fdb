//! Notes that arise while the plan is made, and are printed before anything is started.

use std::ops::Deref;

use serde::Serialize;

use crate::say::{self, Level};

/// A note of the plan. It is displayed and serialized as its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Note {
    text: String,
    is_warning: bool,
}

impl Note {
    /// Returns a note about a rule that took effect, or something that was inferred.
    pub fn info(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            is_warning: false,
        }
    }

    /// Returns a warning about something ignored or harmful.
    pub fn warning(text: impl Into<String>) -> Note {
        Note {
            text: text.into(),
            is_warning: true,
        }
    }

    /// Prints the note.
    pub fn say(&self) {
        say::say(
            if self.is_warning {
                Level::Warning
            } else {
                Level::Info
            },
            &self.text,
        );
    }
}

impl Deref for Note {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

impl From<Note> for String {
    fn from(note: Note) -> String {
        note.text
    }
}

impl PartialEq<&str> for Note {
    fn eq(&self, other: &&str) -> bool {
        self.text == *other
    }
}

impl PartialEq<str> for Note {
    fn eq(&self, other: &str) -> bool {
        self.text == *other
    }
}
