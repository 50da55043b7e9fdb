//! Decides when a failed request is retried, without clocks or sockets.
//!
//! ```text
//! 408, 409, 429, 5xx, timeout, no connection ─► wait (doubling, or `Retry-After`) ─► retry
//! anything else, or too many retries         ─► give up
//! ```

use std::time::Duration;

/// Maximum wait between two requests: enough for a server that is restarted.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often a request is retried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RetryLimits {
    /// Maximum number of requests after the first one.
    pub(super) max_retries: u32,
    /// Wait before the first retry; it doubles each time.
    pub(super) wait: Duration,
}

/// How a request failed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttemptFailure {
    /// The server answered with this status.
    Status {
        /// The HTTP status code.
        code: u16,
        /// The value of `Retry-After`, if it was in seconds.
        retry_after: Option<Duration>,
    },
    /// No answer or an incomplete one: timeouts, refused connections and broken connections.
    Silence,
    /// A retry cannot help, because no valid request can be made.
    Hopeless,
}

/// The attempts of one request so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    limits: RetryLimits,
    failed: u32,
}

impl Attempts {
    /// Creates the state before the first attempt.
    pub(super) fn new(limits: RetryLimits) -> Self {
        Self { limits, failed: 0 }
    }

    /// Returns how many attempts have failed.
    pub(super) fn failed(&self) -> u32 {
        self.failed
    }

    /// Returns how long to wait before the next attempt; `None` to give up.
    pub(super) fn after(&mut self, failure: &AttemptFailure) -> Option<Duration> {
        self.failed += 1;
        let asked = match failure {
            AttemptFailure::Status {
                code: 429 | 408 | 409 | 500..=599,
                retry_after,
            } => *retry_after,
            AttemptFailure::Silence => None,
            AttemptFailure::Status { .. } | AttemptFailure::Hopeless => return None,
        };
        if self.failed > self.limits.max_retries {
            return None;
        }
        let doubled = 2u32.saturating_pow(self.failed - 1);
        let own = self.limits.wait.saturating_mul(doubled).min(LONGEST_WAIT);
        // A server that asks for an hour is asked again sooner, until the retries are used up.
        Some(asked.unwrap_or(own).min(LONGEST_WAIT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: RetryLimits = RetryLimits {
        max_retries: 3,
        wait: Duration::from_secs(1),
    };

    fn waits(failure: AttemptFailure) -> Vec<u64> {
        let mut attempts = Attempts::new(LIMITS);
        std::iter::from_fn(|| attempts.after(&failure))
            .map(|wait| wait.as_secs())
            .collect()
    }

    fn status(code: u16) -> AttemptFailure {
        AttemptFailure::Status {
            code,
            retry_after: None,
        }
    }

    #[test]
    fn what_may_pass_is_tried_again_with_longer_and_longer_waits() {
        for code in [429, 500, 503] {
            assert_eq!(waits(status(code)), [1, 2, 4]);
        }
        assert_eq!(waits(AttemptFailure::Silence), [1, 2, 4]);
    }

    #[test]
    fn what_will_not_pass_is_not_tried_again() {
        for code in [400, 401, 404] {
            assert!(waits(status(code)).is_empty());
        }
        assert!(waits(AttemptFailure::Hopeless).is_empty());
    }

    #[test]
    fn a_server_that_says_when_is_asked_then() {
        let after = |seconds| AttemptFailure::Status {
            code: 429,
            retry_after: Some(Duration::from_secs(seconds)),
        };
        assert_eq!(waits(after(7)), [7, 7, 7]);
        assert_eq!(waits(after(3600)), [60, 60, 60]);
    }

    #[test]
    fn waits_do_not_grow_without_end() {
        let mut attempts = Attempts::new(RetryLimits {
            max_retries: 100,
            ..LIMITS
        });
        let waits: Vec<_> =
            std::iter::from_fn(|| attempts.after(&AttemptFailure::Silence)).collect();
        assert_eq!((waits.len(), waits[99]), (100, LONGEST_WAIT));
    }
}
