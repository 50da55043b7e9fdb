//! Which ranks have arrived, which make no progress, and which do not come back. Pure.
//!
//! ```text
//! up to 64 ranks   all beats ──► each rank that waits ──► Watch ──► Overview
//! more             all beats ──► rank 0 ──► Watch ──► Overview ──► store ──► ranks that wait
//! ```
//! If each of n ranks read n heartbeats, the store would send n² of them a second. Without rank 0
//! there is no report to wait for: who waits counts it as lost and leaves.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::eval::monitor::beat::Beat;

/// With many ranks, those that have made no progress for less than this are not listed; so this is
/// also the shortest time after which a rank counts as lost.
pub const STILL: Duration = Duration::from_secs(5);

/// The last heartbeat of each rank and the time at which it last changed.
#[derive(Debug)]
pub struct Watch {
    last: Vec<(Beat, Instant)>,
    /// Ranks that the launcher does not restart.
    pub gone: BTreeSet<usize>,
}

/// What a rank that waits must know of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Overview {
    /// Grows with every overview, so that it shows that its rank is alive.
    pub turn: u64,
    /// Number of ranks that have arrived.
    pub arrived: usize,
    /// Ranks that have not arrived, and the milliseconds since their last progress.
    pub still: Vec<(usize, u64)>,
    /// Ranks that have not arrived and that the launcher does not restart.
    pub gone: Vec<usize>,
}

/// The last overview, by which a rank decides whether it waits.
#[derive(Debug)]
pub struct Outlook {
    /// The overview.
    pub last: Overview,
    /// When it came.
    since: Instant,
}

impl Watch {
    /// Creates the watch; every rank counts as alive at `now`.
    pub fn new(world_size: usize, now: Instant) -> Self {
        Self {
            last: vec![(Beat::default(), now); world_size],
            gone: BTreeSet::new(),
        }
    }

    /// Records a heartbeat of `rank`.
    pub fn on(&mut self, rank: usize, beat: Beat, now: Instant) {
        if let Some((last, since)) = self.last.get_mut(rank) {
            if beat.has_moved_since(last) {
                *since = now;
            }
            *last = beat;
        }
    }

    /// Returns the ranks that have neither arrived nor are gone, and have made no progress for
    /// `time`, with the time since their last progress.
    pub fn still(&self, now: Instant, time: Duration) -> Vec<(usize, Duration)> {
        let still = self.away().filter(|(rank, _)| !self.gone.contains(rank));
        let still = still.map(|(rank, since)| (rank, now.saturating_duration_since(since)));
        still.filter(|(_, still)| *still >= time).collect()
    }

    /// Returns what a rank must know of all, without those that have been still for less than
    /// `least`.
    pub fn overview(&self, turn: u64, now: Instant, least: Duration) -> Overview {
        let still = self.still(now, least).into_iter();
        let gone = self.away().filter(|(rank, _)| self.gone.contains(rank));
        Overview {
            turn,
            arrived: self.last.len() - self.away().count(),
            still: still
                .map(|(rank, time)| (rank, time.as_millis() as u64))
                .collect(),
            gone: gone.map(|(rank, _)| rank).collect(),
        }
    }

    /// Returns the last heartbeat of each rank, in rank order.
    pub fn beats(&self) -> impl Iterator<Item = &Beat> {
        self.last.iter().map(|(beat, _)| beat)
    }

    /// Returns the ranks that have not arrived, with the times at which they last changed.
    fn away(&self) -> impl Iterator<Item = (usize, Instant)> {
        let ranks = self.last.iter().enumerate();
        ranks.filter_map(|(rank, (beat, since))| (!beat.arrived).then_some((rank, *since)))
    }
}

impl Overview {
    /// Returns the ranks that do not come back, or have made no progress for `timeout`, in order.
    pub fn lost(&self, timeout: Duration) -> Vec<usize> {
        let still = self.still.iter();
        let silent = still.filter(|(_, millis)| Duration::from_millis(*millis) >= timeout);
        let lost = silent.map(|(rank, _)| *rank);
        let lost: BTreeSet<usize> = lost.chain(self.gone.iter().copied()).collect();
        lost.into_iter().collect()
    }
}

impl Outlook {
    /// Returns the outlook of a rank that has read nothing.
    pub fn new(now: Instant) -> Self {
        Self {
            last: Overview::default(),
            since: now,
        }
    }

    /// Takes note of an overview.
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
        self.is_alone(now, timeout) || self.last.arrived + self.last.lost(timeout).len() == ranks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::eval::monitor::peers::tests::beat;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn arrived() -> Beat {
        Beat {
            arrived: true,
            ..Beat::default()
        }
    }

    /// Watches several ranks, of which rank 0 has arrived at once.
    fn watch(ranks: usize) -> (Watch, Instant) {
        let start = now();
        let mut watch = Watch::new(ranks, start);
        watch.on(0, arrived(), start);
        (watch, start)
    }

    /// Returns who is lost, and whether nobody is waited for, after so many seconds.
    fn seen(watch: &Watch, start: Instant, seconds: u64, least: Duration) -> (Vec<usize>, bool) {
        let now = at(start, seconds);
        let mut outlook = Outlook::new(start);
        outlook.on(watch.overview(1, now, least), now);
        let ranks = watch.last.len();
        (
            outlook.lost(now, TIMEOUT),
            outlook.settled(ranks, now, TIMEOUT),
        )
    }

    #[test]
    fn a_slow_rank_is_waited_for_as_long_as_it_moves() {
        let (mut watch, start) = watch(2);
        for seconds in 1..100 {
            watch.on(1, beat(seconds), at(start, seconds));
            let seen = seen(&watch, start, seconds, Duration::ZERO);
            assert_eq!(seen, (vec![], false));
        }
        watch.on(1, arrived(), at(start, 100));
        let settled = (vec![], true);
        assert_eq!(seen(&watch, start, 100, Duration::ZERO), settled);
        assert_eq!(seen(&watch, start, 1000, Duration::ZERO), settled);
    }

    #[test]
    fn a_rank_that_does_not_come_back_is_not_waited_for() {
        let (mut watch, start) = watch(2);
        watch.gone.insert(1);
        assert_eq!(seen(&watch, start, 0, Duration::ZERO), (vec![1], true));
    }

    #[test]
    fn a_rank_that_repeats_itself_is_lost_at_the_deadline() {
        let (mut watch, start) = watch(2);
        watch.on(1, beat(5), at(start, 1));
        let same = Beat {
            gpu_used: 7,
            ..beat(5)
        };
        watch.on(1, same, at(start, 10));
        assert_eq!(seen(&watch, start, 30, Duration::ZERO), (vec![], false));
        assert_eq!(seen(&watch, start, 31, Duration::ZERO), (vec![1], true));
    }

    #[test]
    fn an_overview_for_many_tells_the_same_of_lost_ranks() {
        let (mut watch, start) = watch(5);
        watch.on(1, arrived(), start);
        watch.gone.insert(1);
        watch.gone.insert(2);
        watch.on(3, beat(1), at(start, 9));
        for seconds in [9, 29, 30, 38, 39] {
            let short = seen(&watch, start, seconds, STILL);
            let whole = seen(&watch, start, seconds, Duration::ZERO);
            assert_eq!(short, whole, "{seconds}");
        }
        assert!(seen(&watch, start, 39, STILL).1);
    }

    fn overview(turn: u64) -> Overview {
        Overview {
            turn,
            arrived: 97,
            still: vec![(7, 29_999), (8, 30_000)],
            gone: vec![3],
        }
    }

    #[test]
    fn a_rank_is_lost_when_it_is_gone_or_still_for_the_reader_s_own_time() {
        assert_eq!(overview(1).lost(TIMEOUT), [3, 8]);
        assert_eq!(overview(1).lost(TIMEOUT / 2), [3, 7, 8]);
        let start = now();
        let mut outlook = Outlook::new(start);
        outlook.on(overview(1), start);
        assert!(!outlook.settled(100, start, TIMEOUT));
        assert!(outlook.settled(100, start, TIMEOUT / 2));
    }

    #[test]
    fn rank_0_is_lost_when_it_says_nothing_new_for_the_reader_s_own_time() {
        let start = now();
        let at = |part: u32| start + TIMEOUT / 2 * part;
        let mut outlook = Outlook::new(start);
        for turn in 1..10 {
            outlook.on(overview(u64::from(turn)), at(turn));
            outlook.on(overview(u64::from(turn)), at(turn + 1));
            assert_eq!(outlook.lost(at(turn + 1), TIMEOUT), [3, 8]);
            assert!(!outlook.settled(100, at(turn + 1), TIMEOUT));
        }
        assert_eq!(outlook.lost(at(11), TIMEOUT), [0, 3, 8]);
        assert!(outlook.settled(100, at(11), TIMEOUT));
        outlook.on(overview(1), at(12));
        assert_eq!(outlook.lost(at(12), TIMEOUT), [3, 8], "it is back");
    }
}
