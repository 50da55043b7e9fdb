//! What a rank that waits must know of all others, read by rank 0 for all: who has arrived, who
//! makes no progress, who does not come back. Pure.
//!
//! ```text
//! all ranks ── heartbeats ──► store ──► rank 0 ── overview ──► store ──► ranks that wait
//! ```
//! If each of n ranks read n heartbeats, the store would send n² of them a second. Without rank 0
//! there is no report to wait for: who waits counts it as lost and leaves.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Ranks that have made no progress for less than this are not listed; so this is also the
/// shortest time after which a rank counts as lost.
pub const STILL: Duration = Duration::from_secs(5);

/// What rank 0 publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Grows with every overview, so that it shows that rank 0 is alive.
    pub turn: u64,
    /// Number of ranks that have arrived.
    pub arrived: usize,
    /// Ranks that have not arrived, and the seconds since their last progress.
    pub still: Vec<(usize, u64)>,
    /// Ranks that have not arrived and that the launcher does not restart.
    pub gone: Vec<usize>,
}

impl Overview {
    /// Returns the ranks that do not come back, or have made no progress for `timeout`, in order.
    pub fn lost(&self, timeout: Duration) -> Vec<usize> {
        let still = self.still.iter();
        let silent = still.filter(|(_, seconds)| Duration::from_secs(*seconds) >= timeout);
        let mut lost: Vec<_> = silent.map(|(rank, _)| *rank).collect();
        lost.extend(&self.gone);
        lost.sort_unstable();
        lost.dedup();
        lost
    }

    /// Returns whether each of `ranks` ranks has arrived or is lost.
    pub fn settled(&self, ranks: usize, timeout: Duration) -> bool {
        self.arrived + self.lost(timeout).len() == ranks
    }
}

/// A rank that relies on the overviews of rank 0.
#[derive(Debug)]
pub struct Follower {
    last: Overview,
    /// When the last one came.
    since: Instant,
}

impl Follower {
    /// Returns a follower of rank 0, which has published nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            last: Overview::default(),
            since: now,
        }
    }

    /// Takes note of what the store has.
    pub fn on(&mut self, overview: Overview, now: Instant) {
        if overview != self.last {
            (self.last, self.since) = (overview, now);
        }
    }

    /// Returns whether rank 0 has said nothing new for `timeout`.
    fn is_alone(&self, now: Instant, timeout: Duration) -> bool {
        now.saturating_duration_since(self.since) >= timeout.max(STILL)
    }

    /// Returns the ranks that are lost, in order; see [`Overview::lost`].
    pub fn lost(&self, now: Instant, timeout: Duration) -> Vec<usize> {
        let mut lost = self.last.lost(timeout);
        if self.is_alone(now, timeout) && lost.first() != Some(&0) {
            lost.insert(0, 0);
        }
        lost
    }

    /// Returns whether there is nobody of `ranks` ranks left to wait for.
    pub fn settled(&self, ranks: usize, now: Instant, timeout: Duration) -> bool {
        self.is_alone(now, timeout) || self.last.settled(ranks, timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn overview(turn: u64) -> Overview {
        Overview {
            turn,
            arrived: 97,
            still: vec![(7, 29), (8, 30)],
            gone: vec![3],
        }
    }

    #[test]
    fn a_rank_is_lost_when_it_is_gone_or_still_for_the_reader_s_own_time() {
        assert_eq!(overview(1).lost(TIMEOUT), [3, 8]);
        assert_eq!(overview(1).lost(TIMEOUT / 2), [3, 7, 8]);
        assert!(!overview(1).settled(100, TIMEOUT));
        assert!(overview(1).settled(100, TIMEOUT / 2));
    }

    #[test]
    fn rank_0_is_lost_when_it_says_nothing_new_for_the_reader_s_own_time() {
        let start = now();
        let at = |part: u32| start + TIMEOUT / 2 * part;
        let mut follower = Follower::new(start);
        for turn in 1..10 {
            follower.on(overview(u64::from(turn)), at(turn));
            follower.on(overview(u64::from(turn)), at(turn + 1));
            assert_eq!(follower.lost(at(turn + 1), TIMEOUT), [3, 8]);
            assert!(!follower.settled(100, at(turn + 1), TIMEOUT));
        }
        assert_eq!(follower.lost(at(11), TIMEOUT), [0, 3, 8]);
        assert!(follower.settled(100, at(11), TIMEOUT));
        follower.on(overview(1), at(12));
        assert_eq!(follower.lost(at(12), TIMEOUT), [3, 8], "it is back");
    }
}
