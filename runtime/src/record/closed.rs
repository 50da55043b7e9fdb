//! What a thread of the recorder says last.

use super::RecordError;

/// How closing went.
#[derive(Debug)]
pub(super) struct Closed {
    /// What the user should know, one line each.
    pub(super) notes: Vec<String>,
    /// The first refusal.
    pub(super) result: Result<(), RecordError>,
}

impl Default for Closed {
    fn default() -> Self {
        Self { notes: Vec::new(), result: Ok(()) }
    }
}

impl Closed {
    /// Nothing to say but how it went.
    pub(super) fn of(result: Result<(), RecordError>) -> Self {
        Self { notes: Vec::new(), result }
    }

    /// A thread that panicked.
    pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::of(Err(RecordError::Stopped(text.unwrap_or_else(|| "a panic without words".to_owned()))))
    }

    /// Both; of two refusals the first.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.notes.extend(other.notes);
        Self { notes: self.notes, result: self.result.and(other.result) }
    }
}
