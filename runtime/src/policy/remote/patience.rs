//! Decides when an unreachable server is tried again and when to give up, without clocks or
//! sockets.
//!
//! After the first failure the retry follows at once, because an idle connection may have been
//! closed. Then the pauses double.

use std::time::{Duration, Instant};

/// The second pause; the first one is zero.
const SHORTEST: Duration = Duration::from_millis(250);

/// Maximum pause, short enough to notice soon that a server is back.
const LONGEST: Duration = Duration::from_secs(5);

/// The retry state for one server.
#[derive(Debug, Default)]
pub(super) struct RetryPatience {
    limit: Duration,
    /// Start of the first attempt that failed.
    since: Option<Instant>,
    failures: u32,
    /// The last message to the user.
    told: Option<String>,
}

/// The pause before the next attempt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RetryPause {
    pub(super) time: Duration,
    /// Message for the user before it.
    pub(super) say: Option<String>,
}

impl RetryPatience {
    /// Creates a state in which attempts may start until `limit` after the first failed one.
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            ..Self::default()
        }
    }

    /// Records that an attempt that began at `began` has failed at `now`.
    ///
    /// # Errors
    /// Returns the reason to give up, once that is to be done.
    pub(super) fn failed(
        &mut self,
        reason: &str,
        began: Instant,
        now: Instant,
    ) -> Result<RetryPause, String> {
        let since = *self.since.get_or_insert(began);
        self.failures += 1;
        let waited = now.saturating_duration_since(since);
        let Some(left) = self
            .limit
            .checked_sub(waited)
            .filter(|left| !left.is_zero())
        else {
            let attempts = if self.failures == 1 {
                "1 attempt".to_owned()
            } else {
                format!("{} attempts", self.failures)
            };
            return Err(format!(
                "{attempts} in {:.1} s, the last one: {reason}",
                waited.as_secs_f64()
            ));
        };
        let Some(doublings) = self.failures.checked_sub(2) else {
            return Ok(RetryPause::default());
        };
        let say = (self.told.as_deref() != Some(reason)).then(|| {
            self.told = Some(reason.to_owned());
            format!("{reason}; retrying for {:.0} s", left.as_secs_f64().ceil())
        });
        let time = SHORTEST
            .saturating_mul(1 << doublings.min(8))
            .min(LONGEST)
            .min(left);
        Ok(RetryPause { time, say })
    }

    /// Records a successful attempt; returns a message for the user if the failures were reported.
    pub(super) fn succeeded(&mut self, now: Instant) -> Option<String> {
        let since = self.since.take();
        self.failures = 0;
        self.told.take()?;
        Some(format!(
            "answers again after {:.1} s",
            now.saturating_duration_since(since?).as_secs_f64()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn pauses_grow_up_to_a_limit() {
        let (mut patience, start) = (RetryPatience::new(seconds(100.0)), crate::clock::now());
        let pauses: Vec<f64> = (0..8)
            .map(|_| patience.failed("refused", start, start))
            .map(|pause| pause.unwrap().time.as_secs_f64())
            .collect();
        assert_eq!(pauses, [0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]);
    }

    #[test]
    fn the_last_pause_ends_with_the_patience() {
        let (mut patience, start) = (RetryPatience::new(seconds(10.0)), crate::clock::now());
        patience.failed("refused", start, start).unwrap();
        let pause = patience.failed("refused", start, start + seconds(9.9));
        assert_eq!(pause.unwrap().time, seconds(0.1));
        let last = patience.failed("timed out", start, start + seconds(10.0));
        let wanted = "3 attempts in 10.0 s, the last one: timed out";
        assert_eq!(last.unwrap_err(), wanted);
    }

    #[test]
    fn a_reason_is_told_once_and_so_is_the_return() {
        let (mut patience, start) = (RetryPatience::new(seconds(60.0)), crate::clock::now());
        let mut say = |reason: &str, at: f64| {
            let pause = patience.failed(reason, start, start + seconds(at));
            pause.unwrap().say
        };
        assert_eq!(say("refused", 0.0), None);
        assert_eq!(
            say("refused", 0.0).as_deref(),
            Some("refused; retrying for 60 s")
        );
        assert_eq!(say("refused", 1.0), None);
        assert_eq!(
            say("timed out", 20.5).as_deref(),
            Some("timed out; retrying for 40 s")
        );
        assert_eq!(
            patience.succeeded(start + seconds(21.0)).as_deref(),
            Some("answers again after 21.0 s")
        );
        patience.failed("refused", start, start).unwrap();
        assert_eq!(patience.succeeded(start), None);
    }
}
