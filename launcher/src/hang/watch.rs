//! Decides which ranks hang: those that have neither computed nor written anything for a time. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::agent::event::LocalRank;

/// A rank that uses less than this part of one core only wakes up from time to time, for instance
/// to send a heartbeat or to poll a socket.
const IDLE_PART: u32 = 100;

/// What the processes of a rank have done since they were started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// CPU time of all processes of its session that still run.
    pub cpu: Duration,
    /// Bytes in its captured output.
    pub written: u64,
}

/// Tracks the activity of the ranks of this node.
#[derive(Debug)]
pub struct HangWatch {
    timeout: Duration,
    ranks: BTreeMap<LocalRank, Silence>,
}

#[derive(Clone, Copy, Debug)]
struct Silence {
    /// The activity at `since`.
    last: Activity,
    /// When the rank was last seen to be active.
    since: Instant,
    is_reported: bool,
}

impl HangWatch {
    /// Returns a watch by which a rank hangs if it is silent for `timeout`.
    pub fn new(timeout: Duration) -> HangWatch {
        HangWatch {
            timeout,
            ranks: BTreeMap::new(),
        }
    }

    /// Returns how often the activity should be observed.
    pub fn period(&self) -> Duration {
        (self.timeout / 10).clamp(Duration::from_millis(200), Duration::from_secs(10))
    }

    /// Records the activity of the ranks that run now, and returns those that hang and have not been
    /// returned since they were last active. A rank that is seen for the first time is active.
    pub fn observe(&mut self, now: Instant, ranks: &[(LocalRank, Activity)]) -> Vec<LocalRank> {
        let running: BTreeSet<LocalRank> = ranks.iter().map(|(rank, _)| *rank).collect();
        self.ranks.retain(|rank, _| running.contains(rank));
        let mut hung = Vec::new();
        for &(rank, activity) in ranks {
            let active = Silence {
                last: activity,
                since: now,
                is_reported: false,
            };
            let silence = self.ranks.entry(rank).or_insert(active);
            if silence.is_broken_by(activity, now) {
                *silence = active;
            } else if !silence.is_reported && silence.lasts(now) >= self.timeout {
                silence.is_reported = true;
                hung.push(rank);
            }
        }
        hung
    }
}

impl Silence {
    fn lasts(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_broken_by(&self, activity: Activity, now: Instant) -> bool {
        // Less CPU time than before means other processes: the rank was restarted, or one of its
        // processes has ended.
        let Some(cpu) = activity.cpu.checked_sub(self.last.cpu) else {
            return true;
        };
        activity.written != self.last.written || cpu > self.lasts(now) / IDLE_PART
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(60);

    #[expect(
        clippy::disallowed_methods,
        reason = "any instant will do as the origin"
    )]
    fn watch() -> (HangWatch, Instant) {
        (HangWatch::new(TIMEOUT), Instant::now())
    }

    fn activity(cpu_ms: u64, written: u64) -> Activity {
        Activity {
            cpu: Duration::from_millis(cpu_ms),
            written,
        }
    }

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn a_silent_rank_hangs_once_its_time_is_over() {
        let (mut watch, start) = watch();
        let ranks = [(LocalRank(0), activity(10, 5))];
        assert_eq!(watch.observe(start, &ranks), []);
        assert_eq!(watch.observe(at(start, 59), &ranks), []);
        assert_eq!(watch.observe(at(start, 60), &ranks), [LocalRank(0)]);
        assert_eq!(watch.observe(at(start, 99), &ranks), [], "it is told once");
    }

    #[test]
    fn output_and_cpu_time_are_signs_of_life() {
        let (mut watch, start) = watch();
        let both = |cpu, written| {
            [
                (LocalRank(0), activity(cpu, 0)),
                (LocalRank(1), activity(0, written)),
            ]
        };
        watch.observe(start, &both(0, 0));
        assert_eq!(watch.observe(at(start, 50), &both(900, 1)), []);
        assert_eq!(watch.observe(at(start, 100), &both(900, 1)), []);
        let hung = watch.observe(at(start, 110), &both(900, 1));
        assert_eq!(hung, [LocalRank(0), LocalRank(1)]);
    }

    #[test]
    fn a_rank_that_only_wakes_up_now_and_then_hangs() {
        let (mut watch, start) = watch();
        for second in 0..60 {
            let hung = watch.observe(at(start, second), &[(LocalRank(0), activity(second, 0))]);
            assert_eq!(hung, [], "after {second} s");
        }
        let hung = watch.observe(at(start, 60), &[(LocalRank(0), activity(60, 0))]);
        assert_eq!(hung, [LocalRank(0)]);
    }

    #[test]
    fn a_rank_that_goes_on_can_hang_again() {
        let (mut watch, start) = watch();
        let rank = |written| [(LocalRank(0), activity(0, written))];
        watch.observe(start, &rank(0));
        assert_eq!(watch.observe(at(start, 60), &rank(0)), [LocalRank(0)]);
        assert_eq!(watch.observe(at(start, 70), &rank(1)), []);
        assert_eq!(watch.observe(at(start, 130), &rank(1)), [LocalRank(0)]);
    }

    #[test]
    fn a_restarted_rank_gets_its_whole_time() {
        let (mut watch, start) = watch();
        watch.observe(start, &[(LocalRank(0), activity(500, 0))]);
        watch.observe(at(start, 50), &[]);
        let new = [(LocalRank(0), activity(500, 0))];
        assert_eq!(watch.observe(at(start, 59), &new), []);
        assert_eq!(watch.observe(at(start, 118), &new), []);
        assert_eq!(watch.observe(at(start, 119), &new), [LocalRank(0)]);
    }
}
