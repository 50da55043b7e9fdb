//! Lines for the user: each written whole, so that those of several ranks do not mix, and once more into the rank's log
//! with the time.
//!
//! Unlike `println!` they do not panic when nobody reads them any more (`| tee` after a Ctrl-C): the evaluation goes on,
//! and its results are in files.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::SystemTime;

use jobs::eval_args::{EvalArgs, LogFormat};
use jobs::time::rfc3339;
use serde_json::{Map, Value, json};

static LOG: OnceLock<Mutex<File>> = OnceLock::new();
static STYLE: OnceLock<Style> = OnceLock::new();

/// How lines on stderr look, and which there are.
#[derive(Clone, Copy, Debug, Default)]
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
    /// Better to know.
    Warning,
    /// Why it ended.
    Error,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl Style {
    /// What the command line asks for, or the launcher (`RRUN_LOG_FORMAT`, `RRUN_QUIET`).
    pub fn of(args: &EvalArgs, variable: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            json: args
                .log_format
                .map_or(variable("RRUN_LOG_FORMAT").as_deref() == Some("json"), |format| format == LogFormat::Json),
            quiet: args.quiet || variable("RRUN_QUIET").as_deref() == Some("1"),
        }
    }

    /// The style of this process; the first one stays.
    pub fn adopt(self) {
        let _ = STYLE.set(self);
    }

    /// The style of this process.
    pub fn current() -> Self {
        STYLE.get().copied().unwrap_or_default()
    }
}

/// Lines go into this file as well, after what it holds.
///
/// # Errors
/// Those of the file system.
pub fn log_into(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    // There is one log a process.
    let _ = LOG.set(Mutex::new(file));
    Ok(())
}

/// A line on stdout: a result.
pub fn out(line: impl Display) {
    let line = line.to_string();
    log(Level::Info, &line);
    write(io::stdout().lock(), &line);
}

/// A line on stderr about this rank. `facts` are what a program would read from it.
pub fn say(level: Level, label: &str, line: &str, facts: Value) {
    log(level, line);
    let style = Style::current();
    if style.quiet && level == Level::Info {
        return;
    }
    match style.json {
        true => write(io::stderr().lock(), &object(level, line, facts)),
        false => write(io::stderr().lock(), &format!("{label} {line}")),
    }
}

/// Why this rank ends.
pub fn error(reason: &str) {
    say(Level::Error, "rrun-rank:", reason, json!({}));
}

/// Only into the log: what a terminal shows in another form.
pub fn log(level: Level, line: &str) {
    let Some(mut file) = LOG.get().and_then(|log| log.lock().ok()) else { return };
    // A full disk ends the evaluation where it matters: at the journal.
    let _ = file.write_all(format!("{} {} {line}\n", rfc3339(SystemTime::now()), level.name()).as_bytes());
}

/// `{"time": …, "level": …, "message": …}` and the facts.
fn object(level: Level, line: &str, facts: Value) -> String {
    let mut object = Map::new();
    object.insert("time".to_owned(), rfc3339(SystemTime::now()).into());
    object.insert("level".to_owned(), level.name().into());
    object.insert("message".to_owned(), line.into());
    if let Value::Object(facts) = facts {
        object.extend(facts);
    }
    Value::Object(object).to_string()
}

fn write(mut to: impl Write, line: &str) {
    // See above.
    let _ = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_for_programs_has_its_facts_beside_the_text() {
        let line = object(Level::Warning, "slow", json!({"rank": 3}));
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["level"], &read["message"], &read["rank"]), (&json!("warning"), &json!("slow"), &json!(3)));
        assert!(!line.contains('\n'));
    }
}
