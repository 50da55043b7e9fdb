//! Output for the user. Each line is written with one call, so that lines of several ranks do not
//! mix, and is copied into the rank's log with a timestamp.
//!
//! Unlike `println!`, these functions do not panic if the reader is gone (`| tee` after a Ctrl-C):
//! the evaluation goes on, and its results are in files.

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

use crate::clock::unix_seconds;

static LOG: OnceLock<Mutex<File>> = OnceLock::new();

/// Appends all further lines to the log file at `path` as well.
///
/// # Errors
/// Returns an error if the file or its folder cannot be created or opened.
pub fn log_into(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    // A process has only one log: later calls have no effect.
    let _ = LOG.set(Mutex::new(file));
    Ok(())
}

/// Prints a result line to stdout.
pub fn out(line: impl Display) {
    let line = line.to_string();
    log(Level::Info, &line);
    write(io::stdout().lock(), &line);
}

/// Prints information to stdout, unless the user wants only results.
pub fn info(line: impl Display) {
    if Style::current().shows(Level::Info) {
        out(line);
    } else {
        log(Level::Info, &line.to_string());
    }
}

/// Prints a line about this rank to stderr. `facts` are its fields in the JSON output.
pub fn say(level: Level, label: &str, line: &str, facts: Value) {
    log(level, line);
    let style = Style::current();
    if !style.shows(level) {
        return;
    }
    match style.json {
        true => write(
            io::stderr().lock(),
            &object(level.name(), line, facts).to_string(),
        ),
        false => write(io::stderr().lock(), &format!("{label} {line}")),
    }
}

/// Prints the reason why this rank exits with an error.
pub fn error(reason: &str) {
    say(Level::Error, "rrun-rank:", reason, json!({}));
}

/// Writes `TORCHELASTIC_ERROR_FILE` in the format of torchelastic's `@record`, so that the launcher
/// can report the reason. Source:
/// torch/distributed/elastic/multiprocessing/errors/error_handler.py.
pub fn write_error_file(reason: &str) {
    let path = std::env::var_os("TORCHELASTIC_ERROR_FILE");
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return;
    };
    let time = (unix_seconds() as u64).to_string();
    let text = json!({
        "message": {"message": reason, "extraInfo": {"py_callstack": reason, "timestamp": time}}
    });
    // The reason is already on stderr; a second error about this file would hide it.
    let _ = std::fs::write(path, text.to_string());
}

/// Writes a line only to the log, for example one that the terminal shows in another form.
pub fn log(level: Level, line: &str) {
    let Some(mut file) = LOG.get().and_then(|log| log.lock().ok()) else {
        return;
    };
    // An error is ignored here: if the disk is full, the write to the journal ends the evaluation.
    let _ = file
        .write_all(format!("{} {} {line}\n", rfc3339(SystemTime::now()), level.name()).as_bytes());
}

fn write(mut to: impl Write, line: &str) {
    // Ignored: see the module documentation.
    let _ = to
        .write_all(format!("{line}\n").as_bytes())
        .and_then(|()| to.flush());
}
