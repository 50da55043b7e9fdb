//! What a rank that waits must know of all others, read by one rank for all: who has arrived, who
//! makes no progress, who does not come back. Pure.
//!
//! ```text
//! all ranks ── heartbeats ──► store ──► the guide: rank 0 ── overview ──► store ──► ranks that wait
//!                                          │ silent for too long
//!                                          ▼
//!                        the first rank that waits and notices is the guide
//! ```
//! If each of n ranks read n heartbeats, the store would send n² of them a second.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Ranks that have made no progress for less than this are not listed; so this is also the
/// shortest time after which a rank counts as lost.
pub const STILL: Duration = Duration::from_secs(5);

/// What the guide publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// The guide.
    pub by: usize,
    /// Grows with every overview of this guide.
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

/// A rank that relies on the overviews of a guide.
#[derive(Debug)]
pub struct Follower {
    guide: usize,
    last: Overview,
    /// When the last news of a guide came.
    since: Instant,
    /// Elections since then.
    elections: u32,
}

impl Follower {
    /// Returns a follower of rank 0, which has published nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            guide: 0,
            last: Overview::default(),
            since: now,
            elections: 0,
        }
    }

    /// Takes note of what the store has.
    pub fn on(&mut self, overview: Overview, now: Instant) {
        if overview == self.last {
            return;
        }
        self.guide = overview.by;
        self.last = overview;
        self.since = now;
        self.elections = 0;
    }

    /// Returns the key under which the next guide is elected, if this one has been silent for
    /// `timeout`. All who have seen the same overviews name the same key.
    pub fn election(&self, now: Instant, timeout: Duration) -> Option<String> {
        let Overview { by, turn, .. } = self.last;
        let is_silent = now.saturating_duration_since(self.since) >= timeout.max(STILL);
        is_silent.then(|| format!("guide/{by}/{turn}/{}", self.elections))
    }

    /// Follows the elected guide, which has time to publish.
    pub fn follow(&mut self, guide: usize, now: Instant) {
        self.guide = guide;
        self.since = now;
        self.elections += 1;
    }

    /// Returns the guide.
    pub fn guide(&self) -> usize {
        self.guide
    }

    /// Returns the last overview.
    pub fn last(&self) -> &Overview {
        &self.last
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
            ..Overview::default()
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
    fn a_guide_is_followed_as_long_as_it_says_something_new() {
        let start = now();
        let mut follower = Follower::new(start);
        for turn in 1..10 {
            follower.on(overview(turn), start + TIMEOUT / 2 * turn as u32);
            follower.on(overview(turn), start + TIMEOUT / 2 * (turn as u32 + 1));
            assert_eq!(
                follower.election(start + TIMEOUT / 2 * (turn as u32 + 1), TIMEOUT),
                None
            );
        }
    }

    #[test]
    fn those_who_lost_the_same_guide_meet_in_one_election_after_another() {
        let start = now();
        let (mut one, mut other) = (Follower::new(start), Follower::new(start));
        one.on(overview(4), start);
        other.on(overview(4), start + Duration::from_secs(1));
        let late = start + TIMEOUT + Duration::from_secs(1);
        let key = one.election(late, TIMEOUT).expect("it was silent");
        assert_eq!(other.election(late, TIMEOUT).as_ref(), Some(&key));
        one.follow(5, late);
        assert_eq!((one.guide(), one.election(late, TIMEOUT)), (5, None));
        // The elected one dies before it says anything.
        let later = late + TIMEOUT;
        assert!(one.election(later, TIMEOUT).is_some_and(|next| next != key));
    }
}
