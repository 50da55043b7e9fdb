//! The format of messages on stderr: text for people, or with `--log-format json` one JSON object
//! per line.
//!
//! ```text
//! {"time":"2026-11-21T10:15:30.125Z","level":"warning","message":"rank 2 …","rank":2,"pid":4711}
//! ```
//! Launcher and ranks write the lines themselves, and choose the prefix of text lines. The format
//! is a property of the process, like its stderr.

use std::sync::OnceLock;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::eval_args::{EvalArgs, LogFormat};
use crate::time::rfc3339;

/// The variable with which the launcher passes `--log-format` to its ranks.
pub const FORMAT_VARIABLE: &str = "RRUN_LOG_FORMAT";

/// The variable with which the launcher passes `--quiet` to its ranks, as `1`.
pub const QUIET_VARIABLE: &str = "RRUN_QUIET";

static STYLE: OnceLock<Style> = OnceLock::new();

/// Format of the messages, and which are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Whether to write one JSON object per line.
    pub json: bool,
    /// Whether to show only warnings, errors and results.
    pub quiet: bool,
}

/// Severity of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Information, hidden by `--quiet`.
    Info,
    /// A result that was asked for; shown even with `--quiet`.
    Result,
    /// A warning.
    Warning,
    /// An error: the reason for a failure.
    Error,
}

impl Style {
    /// Returns the style that the arguments of `eval` ask for, otherwise the one that the launcher
    /// passed in its variables.
    pub fn of(args: &EvalArgs, variable: impl Fn(&str) -> Option<String>) -> Self {
        let told = || variable(FORMAT_VARIABLE).as_deref() == Some("json");
        Self {
            json: args
                .log_format
                .map_or_else(told, |format| format == LogFormat::Json),
            quiet: args.quiet || variable(QUIET_VARIABLE).as_deref() == Some("1"),
        }
    }

    /// Sets the style of this process; only the first call has an effect.
    pub fn adopt(self) {
        // A later call keeps the first style, which is just as good.
        let _ = STYLE.set(self);
    }

    /// Returns the style of this process.
    pub fn current() -> Self {
        STYLE.get().copied().unwrap_or_default()
    }

    /// Returns whether messages of this level are shown.
    pub fn shows(self, level: Level) -> bool {
        !(self.quiet && level == Level::Info)
    }
}

impl Level {
    /// Returns the name of the level in a JSON line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info | Self::Result => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Returns `{"time": …, "level": …, "message": …}` with the current time, extended by `facts`,
/// which is an object or `null`.
pub fn object(level: &str, message: &str, facts: impl Into<Value>) -> Value {
    let time = rfc3339(SystemTime::now());
    let mut line = json!({"time": time, "level": level, "message": message});
    if let (Value::Object(line), Value::Object(facts)) = (&mut line, facts.into()) {
        line.extend(facts);
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::samples;

    #[test]
    fn quiet_leaves_out_what_is_only_good_to_know() {
        let levels = [Level::Info, Level::Result, Level::Warning, Level::Error];
        for (quiet, json) in [(false, false), (true, false), (true, true)] {
            let shown = levels.map(|level| Style { json, quiet }.shows(level));
            assert_eq!(shown, [!quiet, true, true, true]);
        }
    }

    #[test]
    fn a_line_for_programs_is_one_object_with_its_facts() {
        let facts = Map::from_iter([("rank".to_owned(), 3.into())]);
        let line = object(Level::Warning.name(), "two\nlines", facts).to_string();
        assert_eq!(line.lines().count(), 1);
        let read: Value = serde_json::from_str(&line).expect("JSON");
        let names: Vec<&String> = read.as_object().expect("an object").keys().collect();
        assert_eq!(names, ["time", "level", "message", "rank"]);
        let wanted = [&Value::from("warning"), &"two\nlines".into(), &3.into()];
        assert_eq!([&read["level"], &read["message"], &read["rank"]], wanted);
    }

    #[test]
    fn a_rank_speaks_as_its_words_say_and_else_as_its_launcher() {
        let style = |words: &[&str], told: &[&str; 2]| {
            let told = |name: &str| {
                let position = [FORMAT_VARIABLE, QUIET_VARIABLE]
                    .iter()
                    .position(|it| *it == name);
                position.map(|nth| told[nth].to_owned())
            };
            let Style { json, quiet } = Style::of(&samples::eval_args(words), told);
            (json, quiet)
        };
        assert_eq!(style(&[], &["", ""]), (false, false));
        assert_eq!(style(&[], &["json", "1"]), (true, true));
        let text = style(&["--log-format", "text"], &["json", "1"]);
        assert_eq!(text, (false, true));
    }
}
