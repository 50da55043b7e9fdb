//! Writes TensorBoard's event files, without Python.
//!
//! ```text
//! <folder>/events.out.tfevents.<seconds>.<host>.<pid>.0
//!          one file for each start of rank 0; TensorBoard reads them in the order of their names
//! ```

mod event;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Map, Value};

use crate::clock::unix_seconds;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message};
use crate::eval::monitor::tracking::point::Point;

/// An open event file.
struct EventFile {
    file: File,
}

/// Writes the event file of a run: its configuration, the points that come, and its end.
///
/// # Errors
/// Returns the errors of the file system.
pub fn run(folder: &Path, config: &Map<String, Value>, mailbox: &Mailbox) -> io::Result<()> {
    let mut events = EventFile::create(folder)?;
    events.write(&event::text(unix_seconds(), 0, "config", &as_table(config)))?;
    let mut last_step = 0;
    while let Some(message) = mailbox.wait() {
        match message {
            Message::Point(Point {
                step,
                unix_s,
                values,
            }) => {
                last_step = step;
                events.write(&event::scalars(unix_s, step, &values))?;
            }
            Message::Ending(ending) => {
                let texts = [("tasks", ending.table()), ("files", ending.files())];
                for (tag, text) in texts {
                    events.write(&event::text(unix_seconds(), last_step, tag, &text))?;
                }
                break;
            }
        }
    }
    Ok(())
}

impl EventFile {
    /// Creates a file with a new name.
    fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let (now, host) = (unix_seconds(), jobs::host::name());
        let name = format!(
            "events.out.tfevents.{:010}.{host}.{}.0",
            now as u64,
            std::process::id()
        );
        let path = folder.join(name);
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        let mut events = Self { file };
        events.write(&event::version(now))?;
        Ok(events)
    }

    /// Appends an event in one write, so that TensorBoard sees whole ones.
    fn write(&mut self, event: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(event.len() + 16);
        record::append(&mut bytes, event);
        self.file.write_all(&bytes)
    }
}

/// Returns the configuration as a table in Markdown.
fn as_table(config: &Map<String, Value>) -> String {
    let row = |(name, value): (&String, &Value)| {
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        format!("| {name} | {} |\n", text.replace('|', "\\|"))
    };
    let rows: String = config.iter().map(row).collect();
    format!("| setting | value |\n|---|---|\n{rows}")
}
