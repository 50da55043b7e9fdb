//! Deadlines; the only place of this crate that reads the clock.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the moment `wait` from now.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait for peers ends by the clock"
    )]
    pub fn after(wait: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(wait).unwrap_or(now + FAR))
    }

    /// Returns the remaining time, zero after the deadline.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait for peers ends by the clock"
    )]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns the deadline postponed by `wait`.
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.checked_add(wait).unwrap_or(self.0))
    }
}

/// A year, in place of waits that the clock cannot represent.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// Runs `work` on a thread and returns its result, or `None` after `limit`, when the thread is left
/// behind.
///
/// It is meant for calls that cannot be interrupted, for example on a half-open connection or in
/// NCCL while it waits for a dead peer.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    let named = thread::Builder::new().name("rrun-dist".to_owned());
    // After the limit the receiver is gone, and the result is dropped.
    named.spawn(move || drop(done.send(work()))).ok()?;
    outcome.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_ends_in_time_is_returned() {
        assert_eq!(within(Duration::from_secs(10), || 7), Some(7));
    }

    #[test]
    fn work_that_never_ends_is_left_behind() {
        let (_keep, forever) = mpsc::channel::<()>();
        assert_eq!(
            within(Duration::from_millis(20), move || forever.recv().is_ok()),
            None
        );
    }

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(
            Deadline::after(Duration::MAX).plus(Duration::MAX).left() > Duration::from_secs(3600)
        );
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
