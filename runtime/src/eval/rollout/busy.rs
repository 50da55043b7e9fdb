//! Measures how long at least one of several workers is busy. Pure: no I/O and no clock of its own.

use std::time::{Duration, Instant};

/// The total length of the union of overlapping time spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    at_work: usize,
    since: Option<Instant>,
    total: Duration,
}

impl Busy {
    /// Starts `count` spans at `now`.
    pub fn begin(&mut self, count: usize, now: Instant) {
        self.at_work += count;
        if self.at_work > 0 {
            self.since.get_or_insert(now);
        }
    }

    /// Ends one span at `now`.
    pub fn end(&mut self, now: Instant) {
        self.at_work = self.at_work.saturating_sub(1);
        if self.at_work == 0
            && let Some(since) = self.since.take()
        {
            self.total += now.saturating_duration_since(since);
        }
    }

    /// Returns the total so far, without a span that is still open.
    pub fn total(&self) -> Duration {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn overlapping_spans_count_once() {
        let (mut busy, start) = (Busy::default(), now());
        let at = |seconds| start + Duration::from_secs(seconds);
        busy.begin(1, at(0));
        busy.begin(1, at(2));
        busy.end(at(3));
        busy.end(at(5));
        busy.begin(1, at(10));
        busy.end(at(11));
        assert_eq!(busy.total(), Duration::from_secs(6));
    }
}
