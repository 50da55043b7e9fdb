//! The result of closing a thread of the recorder.

use crate::record::RecordError;

/// The result of closing a thread of the recorder.
#[derive(Debug)]
pub(super) struct ThreadResult {
    /// Messages for the user, one line each.
    pub(super) notes: Vec<String>,
    /// Success, or the first error.
    pub(super) result: Result<(), RecordError>,
}

impl Default for ThreadResult {
    fn default() -> Self {
        Self {
            notes: Vec::new(),
            result: Ok(()),
        }
    }
}

impl ThreadResult {
    /// Returns a result without messages.
    pub(super) fn of(result: Result<(), RecordError>) -> Self {
        Self {
            notes: Vec::new(),
            result,
        }
    }

    /// Returns the result of a thread that panicked.
    pub(super) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        Self::of(Err(RecordError::Stopped(
            text.unwrap_or_else(|| "a panic without a message".to_owned()),
        )))
    }

    /// Combines two results: all messages, and the first error.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.notes.extend(other.notes);
        Self {
            notes: self.notes,
            result: self.result.and(other.result),
        }
    }
}
