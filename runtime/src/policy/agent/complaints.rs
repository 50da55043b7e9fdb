//! Decides when the user is told about a failing server that is being retried: at once, then at
//! intervals with the number of failures.
//!
//! ```text
//! failure ─► message ─► more failures, no message ─► failure after 30 s ─► message: 3 failed
//!               └─────► answer ─► one message
//! ```

use std::time::{Duration, Instant};

/// Minimum time between two messages about failures.
const QUIET: Duration = Duration::from_secs(30);

/// The failures of one server in all conversations together.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    /// Number of failures since the last message.
    failed: u32,
    /// Time of the last message.
    said: Option<Instant>,
    /// Whether the last message said that the server fails.
    is_away: bool,
}

impl Complaints {
    /// Records that a request has failed and will be retried; returns a message if one is due.
    pub(super) fn on_failure(&mut self, reason: &str, now: Instant) -> Option<String> {
        self.failed += 1;
        if self
            .said
            .is_some_and(|said| now.saturating_duration_since(said) < QUIET)
        {
            return None;
        }
        let is_first = self.said.replace(now).is_none();
        self.is_away = true;
        let failed = std::mem::take(&mut self.failed);
        let since = if is_first {
            String::new()
        } else {
            format!(" ({failed} requests failed since the last message)")
        };
        Some(format!("{reason}; retrying{since}"))
    }

    /// Records that a request was answered; returns a message if the last one reported a failure.
    pub(super) fn on_answer(&mut self) -> Option<&'static str> {
        std::mem::take(&mut self.is_away).then_some("answers again")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instant() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "some instant to count from")]
        Instant::now()
    }

    #[test]
    fn the_first_failure_is_said_at_once_and_those_after_it_are_counted() {
        let (mut complaints, start) = (Complaints::default(), instant());
        let first = complaints.on_failure("answered with status 503", start);
        assert_eq!(first.as_deref(), Some("answered with status 503; retrying"));
        assert_eq!(
            complaints.on_failure("refuses connections", start + Duration::from_secs(1)),
            None
        );
        let later = complaints.on_failure("refuses connections", start + QUIET);
        let wanted = "refuses connections; retrying (2 requests failed since the last message)";
        assert_eq!(later.as_deref(), Some(wanted));
    }

    #[test]
    fn a_server_that_fails_now_and_then_is_spoken_of_now_and_then() {
        let (mut complaints, start) = (Complaints::default(), instant());
        assert_eq!(complaints.on_answer(), None);
        let said = (0..60).filter(|second| {
            let failure = complaints.on_failure(
                "answered with status 503",
                start + Duration::from_secs(*second),
            );
            assert_eq!(complaints.on_answer().is_some(), failure.is_some());
            failure.is_some()
        });
        assert_eq!(said.collect::<Vec<_>>(), [0, 30]);
    }
}
