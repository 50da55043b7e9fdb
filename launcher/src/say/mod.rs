//! Lines of the launcher's own on stderr: for people, or with `--log-format json` one object a line for programs.
//!
//! ```text
//! rrun: rank 2 was killed by SIGKILL; restart 1 of 3 in 1 s, the other ranks go on
//! {"time":"2026-11-21T10:15:30.125Z","level":"warning","message":"rank 2 was killed by …","rank":2,"pid":4711}
//! ```
//! Each is written whole and at once. Unlike `eprintln!` nothing panics when nobody reads any more: the launch goes on.
//! How lines look is a fact of the process, as that it has a stderr is.

pub mod note;
pub mod trace;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::time::SystemTime;

use jobs::time::rfc3339;
use serde_json::{Map, Value};

use crate::cli::Cli;
pub use crate::say::note::Note;

static STYLE: OnceLock<Style> = OnceLock::new();

/// How lines look, and which there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// One JSON object a line.
    pub json: bool,
    /// Only warnings, errors and results.
    pub quiet: bool,
}

/// How much a line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// What was asked for: said however quiet one is to be.
    Result,
    /// Better to know.
    Warning,
    /// Why it fails.
    Error,
}

/// The rank that a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Global rank.
    pub rank: usize,
    /// Process id, of a rank that was started.
    pub pid: Option<i32>,
}

impl Style {
    /// What the command line asks for.
    pub fn of(cli: &Cli) -> Style {
        Style { json: cli.log_format.as_deref() == Some("json"), quiet: cli.quiet }
    }

    /// The style of this process from now on; the first one stays.
    pub fn adopt(self) {
        // Who asks for another one later gets the first, which is as good as any.
        let _ = STYLE.set(self);
    }

    /// The style of this process.
    pub fn current() -> Style {
        STYLE.get().copied().unwrap_or_default()
    }

    /// The line as it is printed, if it is.
    fn line(self, level: Level, line: &str, facts: Map<String, Value>) -> Option<String> {
        match self {
            Style { quiet: true, .. } if level == Level::Info => None,
            Style { json: true, .. } => Some(object(level.name(), line, facts)),
            Style { json: false, .. } => Some(format!("rrun: {line}\n")),
        }
    }
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Info | Level::Result => "info",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// Good to know.
pub fn info(line: impl Display) {
    say(Level::Info, line);
}

/// Better to know.
pub fn warning(line: impl Display) {
    say(Level::Warning, line);
}

/// Why it fails.
pub fn error(line: impl Display) {
    say(Level::Error, line);
}

/// A line.
pub fn say(level: Level, line: impl Display) {
    print(Style::current().line(level, &line.to_string(), Map::new()));
}

/// A line about a rank.
pub fn of_rank(level: Level, about: About, line: impl Display) {
    let pid = about.pid.map(|pid| ("pid".to_owned(), pid.into()));
    let facts = [("rank".to_owned(), about.rank.into())].into_iter().chain(pid).collect();
    print(Style::current().line(level, &line.to_string(), facts));
}

/// Lines that belong together, and that people know without a name before them.
pub fn block(level: Level, text: &str) {
    match Style::current() {
        Style { json: true, .. } => print(Some(object(level.name(), text.trim_end(), Map::new()))),
        Style { json: false, .. } => print(Some(text.to_owned())),
    }
}

/// Text that has its form already.
pub fn print(text: Option<String>) {
    // See above.
    let _ = text.map(|text| io::stderr().lock().write_all(text.as_bytes()));
}

/// `{"time": …, "level": …, "message": …}` and the facts, as ranks of `eval` have it too.
fn object(level: &str, message: &str, facts: Map<String, Value>) -> String {
    let own = [("time", rfc3339(SystemTime::now())), ("level", level.to_owned()), ("message", message.to_owned())];
    let own = own.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value)));
    format!("{}\n", Value::Object(own.chain(facts).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: [Level; 4] = [Level::Info, Level::Result, Level::Warning, Level::Error];

    fn shown(style: Style) -> [bool; 4] {
        LEVELS.map(|level| style.line(level, "x", Map::new()).is_some())
    }

    #[test]
    fn quiet_leaves_out_what_is_only_good_to_know() {
        assert_eq!(shown(Style { quiet: true, json: false }), [false, true, true, true]);
        assert_eq!(shown(Style { quiet: true, json: true }), [false, true, true, true]);
        assert_eq!(shown(Style::default()), [true; 4]);
    }

    #[test]
    fn a_line_for_people_has_the_launcher_s_name() {
        assert_eq!(Style::default().line(Level::Error, "x: y", Map::new()).as_deref(), Some("rrun: x: y\n"));
    }

    #[test]
    fn a_line_for_programs_is_one_object_with_its_facts() {
        let facts = Map::from_iter([("rank".to_owned(), 3.into())]);
        let line = Style { json: true, quiet: false }.line(Level::Warning, "two\nlines", facts).expect("shown");
        assert_eq!(line.lines().count(), 1);
        let read: Value = serde_json::from_str(&line).expect("JSON");
        let names: Vec<&String> = read.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["time", "level", "message", "rank"]);
        assert_eq!(
            [&read["level"], &read["message"], &read["rank"]],
            [&Value::from("warning"), &"two\nlines".into(), &3.into()]
        );
    }
}
