//! The launcher's own messages on stderr: lines for people, or with `--log-format json` one JSON
//! object per line for programs.
//!
//! ```text
//! rrun: rank 2 was killed by SIGKILL; restart 1 of 3 in 1 s, the other ranks go on
//! {"time":"2026-11-21T10:15:30.125Z","level":"warning","message":"rank 2 was killed …","rank":2,…}
//! ```
//! Messages contain text from elsewhere: errors of ranks, names, values of the store. Control
//! characters in them are escaped; only the output of the ranks themselves is passed through
//! unchanged, as under torchrun.
//!
//! Each message is written whole, in one call. Unlike `eprintln!`, nothing panics if stderr is
//! closed: the launch goes on.

pub mod trace;

use std::fmt::Display;
use std::io::{self, Write as _};

use jobs::printable::{printable, printable_json};
use jobs::say::object;
pub use jobs::say::{Level, Style};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::rank_id::RankId;

/// Formats a message; returns `None` if its level is not shown.
fn text(style: Style, level: Level, line: &str, facts: Map<String, Value>) -> Option<String> {
    match style {
        _ if !style.shows(level) => None,
        Style { json: true, .. } => Some(json_line(level, line, facts)),
        Style { json: false, .. } => Some(format!("rrun: {}\n", printable(line))),
    }
}

/// Prints an informational message.
pub fn info(line: impl Display) {
    say(Level::Info, line);
}

/// Prints a warning.
pub fn warning(line: impl Display) {
    say(Level::Warning, line);
}

/// Prints an error.
pub fn error(line: impl Display) {
    say(Level::Error, line);
}

/// Prints a message.
pub fn say(level: Level, line: impl Display) {
    print(text(Style::current(), level, &line.to_string(), Map::new()));
}

/// Prints a message about a rank, and about this process of it if it was started.
pub fn of_rank(level: Level, rank: RankId, pid: Option<i32>, line: impl Display) {
    let pid = pid.map(|pid| ("pid".to_owned(), pid.into()));
    let facts = [("rank".to_owned(), rank.global.into())]
        .into_iter()
        .chain(pid)
        .collect();
    print(text(Style::current(), level, &line.to_string(), facts));
}

/// Prints a block of lines that belong together, without the prefix `rrun:`.
pub fn block(level: Level, text: &str) {
    match Style::current() {
        Style { json: true, .. } => print(Some(json_line(level, text.trim_end(), Map::new()))),
        Style { json: false, .. } => print(Some(printable(text).into_owned())),
    }
}

fn json_line(level: Level, line: &str, facts: Map<String, Value>) -> String {
    format!(
        "{}\n",
        printable_json(&object(level.name(), line, facts).to_string())
    )
}

/// Prints text that has been formatted already.
pub fn print(text: Option<String>) {
    // Errors are ignored: the launch goes on if stderr is closed.
    let _ = text.map(|text| io::stderr().lock().write_all(text.as_bytes()));
}

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
        say(self.level, &self.text);
    }
}

impl From<Note> for String {
    fn from(note: Note) -> String {
        note.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(json: bool, quiet: bool, level: Level, line: &str) -> Option<String> {
        text(Style { quiet, json }, level, line, Map::new())
    }

    #[test]
    fn a_line_for_people_has_the_launcher_s_name_and_may_be_unwanted() {
        let line = said(false, false, Level::Error, "x: y");
        assert_eq!(line.as_deref(), Some("rrun: x: y\n"));
        let quiet = [Level::Info, Level::Result].map(|level| said(false, true, level, "x"));
        assert_eq!(quiet.map(|line| line.is_some()), [false, true]);
    }

    #[test]
    fn a_line_for_programs_is_an_object_and_ends() {
        let line = said(true, false, Level::Warning, "two\nlines").expect("shown");
        assert!(
            line.starts_with("{\"time\":") && line.ends_with("}\n") && line.lines().count() == 1,
            "{line}"
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_text() {
        let line = "rank 1 says \u{1b}]0;owned\u{7}\u{9b}2J\u{202e}\r";
        assert_eq!(
            said(false, false, Level::Error, line).expect("shown"),
            "rrun: rank 1 says \\u{1b}]0;owned\\u{7}\\u{9b}2J\\u{202e}\\r\n"
        );
        let json = said(true, false, Level::Error, line).expect("shown");
        let is_obeyed = |char: char| char.is_control() || char == '\u{202e}';
        assert!(!json.trim_end().contains(is_obeyed), "{json:?}");
        let read: Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(read["message"], line, "a program reads what was said");
    }
}
