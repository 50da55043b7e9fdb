//! Decides when the journal lines of finished episodes are synced to disk. Pure: no I/O and no
//! clock of its own.
//!
//! ```text
//! line ── sync ── pause ──┬─ no line: nothing ── line ── sync …
//!                         └─ lines: one sync for all of them
//! ```
//! A line that comes after the pause is synced at once, as are all lines of environments whose
//! episodes take longer than that. The pause is a multiple of what the last sync took, so that
//! slow disks cost short episodes no more than fast ones do.

use std::time::{Duration, Instant};

/// The pause after a sync takes this many times as long as the sync: syncs take at most a twentieth
/// of the loop's time.
const PAUSE: u32 = 19;

/// Longest pause, and with it the longest time that a line waits: what a crash of the machine may
/// cost.
const LONGEST: Duration = Duration::from_millis(250);

/// When the next sync is due.
#[derive(Debug, Default)]
pub struct SyncPace {
    /// End of the pause after the last sync.
    rested: Option<Instant>,
    /// Time at which the oldest line was written that is not synced.
    waits: Option<Instant>,
}

impl SyncPace {
    /// Records that a line was written.
    pub fn on_line(&mut self, now: Instant) {
        self.waits.get_or_insert(now);
    }

    /// Records a sync.
    pub fn on_sync(&mut self, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.rested = Some(ended + took.saturating_mul(PAUSE).min(LONGEST));
        self.waits = None;
    }

    /// Returns when the lines that wait have to be synced; `None` if none waits.
    pub fn due(&self) -> Option<Instant> {
        let waits = self.waits?;
        Some(self.rested.map_or(waits, |rested| rested.max(waits)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    #[test]
    fn the_first_line_and_one_after_a_pause_are_due_at_once() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(pace.due(), None);
        pace.on_line(at(0));
        assert_eq!(pace.due(), Some(at(0)));
        pace.on_sync(at(0), at(2));
        assert_eq!(pace.due(), None);
        pace.on_line(at(100));
        assert_eq!(pace.due(), Some(at(100)));
    }

    #[test]
    fn lines_during_the_pause_share_the_sync_at_its_end() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        pace.on_sync(at(0), at(2));
        pace.on_line(at(5));
        pace.on_line(at(30));
        assert_eq!(pace.due(), Some(at(2 + 38)));
    }

    #[test]
    fn no_line_waits_longer_than_the_longest_pause_however_slow_the_disk() {
        let (mut pace, start) = (SyncPace::default(), now());
        let at = |ms| start + Duration::from_millis(ms);
        pace.on_sync(at(0), at(3_000));
        pace.on_line(at(3_001));
        assert_eq!(pace.due(), Some(at(3_250)));
    }
}
