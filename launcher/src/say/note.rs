//! What is found while the plan is made, and said before anything is started.

use std::ops::Deref;

use serde::Serialize;

use crate::say::{self, Level};

/// A line of the plan's. It reads as its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub struct Note {
    text: String,
    is_warning: bool,
}

impl Note {
    /// A rule that took effect, something that was inferred.
    pub fn info(text: impl Into<String>) -> Note {
        Note { text: text.into(), is_warning: false }
    }

    /// Something ignored, something that will hurt.
    pub fn warning(text: impl Into<String>) -> Note {
        Note { text: text.into(), is_warning: true }
    }

    /// Says it.
    pub fn say(&self) {
        say::say(if self.is_warning { Level::Warning } else { Level::Info }, &self.text);
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
