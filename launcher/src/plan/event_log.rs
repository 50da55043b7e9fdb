//! `--event-log-handler`: where the events of a launch are written.

use std::path::PathBuf;

use serde::Serialize;

/// The destination of events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EventLog {
    /// Events are not written.
    #[default]
    None,
    /// Standard error.
    Console,
    /// A file, to which events are appended.
    File(PathBuf),
}

impl EventLog {
    /// Parses the option's value; returns `None` if there is no such handler.
    pub fn parse(handler: &str) -> Option<EventLog> {
        match (handler, handler.strip_prefix("json:")) {
            ("null" | "dynamic_rendezvous", _) => Some(EventLog::None),
            ("console", _) => Some(EventLog::Console),
            (_, Some(path)) if !path.is_empty() => Some(EventLog::File(PathBuf::from(path))),
            _ => None,
        }
    }
}
