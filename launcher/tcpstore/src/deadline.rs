//! Deadlines of the blocking client and of those who wait with it.

use std::time::{Duration, Instant};

/// A year, in place of waits that the clock cannot represent.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(
            Deadline::after(Duration::MAX).plus(Duration::MAX).left() > Duration::from_secs(3600)
        );
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
