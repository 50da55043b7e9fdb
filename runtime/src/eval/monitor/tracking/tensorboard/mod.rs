//! Writes TensorBoard's event files, without Python.
//!
//! ```text
//! <folder>/events.out.tfevents.<seconds>.<host>.<pid>.0
//!          one file for each start of rank 0; TensorBoard reads them in the order of their names
//! ```

mod event;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::clock::unix_seconds;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message};
use crate::eval::monitor::tracking::point::Point;

/// Writes the event file of a run: its configuration, the points that come, and its end.
///
/// # Errors
/// Returns the errors of the file system.
pub fn run(folder: &Path, config: &Value, mailbox: &Mailbox) -> io::Result<()> {
    let mut events = create(folder)?;
    let config = event::text(unix_seconds(), 0, "config", &as_table(config));
    record::append(&mut events, &config)?;
    let mut last_step = 0;
    while let Some(message) = mailbox.wait() {
        match message {
            Message::Point(Point {
                step,
                unix_s,
                values,
            }) => {
                last_step = step;
                record::append(&mut events, &event::scalars(unix_s, step, &values))?;
            }
            Message::Ending(ending) => {
                let texts = [("tasks", &ending.table), ("files", &ending.files())];
                for (tag, text) in texts {
                    let text = event::text(unix_seconds(), last_step, tag, text);
                    record::append(&mut events, &text)?;
                }
                break;
            }
        }
    }
    Ok(())
}

/// Creates a file with a new name.
fn create(folder: &Path) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let (now, host, pid) = (unix_seconds(), jobs::host::name(), std::process::id());
    let name = format!("events.out.tfevents.{:010}.{host}.{pid}.0", now as u64);
    let path = folder.join(name);
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    record::append(&mut file, &event::version(now))?;
    Ok(file)
}

/// Returns the configuration as a table in Markdown.
fn as_table(config: &Value) -> String {
    let row = |(name, value): (&String, &Value)| {
        let text = value.as_str().map(str::to_owned);
        let text = text.unwrap_or_else(|| value.to_string());
        format!("| {name} | {} |\n", text.replace('|', "\\|"))
    };
    let rows: String = config.as_object().into_iter().flatten().map(row).collect();
    format!("| setting | value |\n|---|---|\n{rows}")
}
