//! Time that runs out: the only place of `dist` that reads the clock.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A moment after which nobody waits.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// The moment `wait` from now.
    #[expect(clippy::disallowed_methods, reason = "a wait for peers ends by the clock")]
    pub fn after(wait: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(wait).unwrap_or(now + FAR))
    }

    /// What is left, zero when it has passed.
    #[expect(clippy::disallowed_methods, reason = "a wait for peers ends by the clock")]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// The same for another `wait`.
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.checked_add(wait).unwrap_or(self.0))
    }
}

/// Stands for waits that the clock cannot hold: a year.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What `work` returns, if it does so within `limit`; else its thread is left behind.
///
/// For calls that have no way out of their own: a half-open connection, NCCL waiting for a peer that died.
pub fn within<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, outcome) = mpsc::channel();
    let named = thread::Builder::new().name("rrun-dist".to_owned());
    // The receiver is gone when the limit has passed: nobody wants the outcome then.
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
        assert_eq!(within(Duration::from_millis(20), move || forever.recv().is_ok()), None);
    }

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(Deadline::after(Duration::MAX).plus(Duration::MAX).left() > Duration::from_secs(3600));
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
