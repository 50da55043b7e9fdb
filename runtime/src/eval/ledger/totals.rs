//! Counters of one job in one rank, for its last journal line. Pure: no I/O and no clock of its
//! own.

use std::time::{Duration, Instant};

use jobs::costs::Costs;

use crate::latency::Latency;
use crate::policy::Shortage;

/// Counters of one job in one rank.
#[derive(Debug, Default)]
pub struct Totals {
    /// What is counted as the journal has it.
    pub costs: Costs,
    /// Number of steps whose action had a value out of bounds.
    pub out_of_bounds: u64,
    /// Duration of a policy call.
    pub infer: Latency,
    /// Duration of a group's turn: that of its slowest step, including its wait for a CPU core.
    pub sim: Latency,
    /// Time in which the policy ran inference; see [`Totals::infer_busy`].
    pub inferred: Duration,
    /// Time in which a planner had at least one question.
    pub thinking: Busy,
    /// Time in which at least one environment was at work.
    pub sim_busy: Busy,
    /// Memory shortages that the policy reported.
    pub shortage: Shortage,
}

impl Totals {
    /// Returns the time in which the policy ran inference, or a planner had at least one question.
    pub fn infer_busy(&self) -> Duration {
        self.inferred + self.thinking.total
    }
}

/// The total length of the union of overlapping time spans.
#[derive(Clone, Copy, Debug, Default)]
pub struct Busy {
    at_work: usize,
    since: Option<Instant>,
    /// The total so far, without a span that is still open.
    pub total: Duration,
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
        assert_eq!(busy.total, Duration::from_secs(6));
    }
}
