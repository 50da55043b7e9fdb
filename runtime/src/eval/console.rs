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

use jobs::say::object;
pub use jobs::say::{Level, Style};
use jobs::time::rfc3339;
use serde_json::{Value, json};

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

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
    if !style.shows(level) {
        return;
    }
    match style.json {
        true => write(io::stderr().lock(), &object(level.name(), line, facts).to_string()),
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

fn write(mut to: impl Write, line: &str) {
    // See above.
    let _ = to.write_all(format!("{line}\n").as_bytes()).and_then(|()| to.flush());
}
