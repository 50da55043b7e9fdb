//! Decides which ranks hang. Pure.
//!
//! A rank of `eval` whose environments step tells its launcher how far it is: without progress for a
//! time it hangs, however busy it is. Any other rank hangs if it has neither computed nor written
//! anything for that time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jobs::live::{Pulse, RankPhase};

use crate::rank_id::RankId;

/// A rank that uses less than this part of one core only wakes up from time to time, for instance
/// to send a heartbeat or to poll a socket.
const IDLE_PART: u32 = 100;

/// What the processes of a rank have done since they were started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// The process of the rank, which is another one after a restart.
    pub pid: i32,
    /// CPU time of all processes of its session that still run.
    pub cpu: Duration,
    /// Bytes in its captured output.
    pub written: u64,
    /// How far it is, if it tells.
    pub pulse: Option<Pulse>,
}

/// A rank that hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HungRank {
    /// The rank.
    pub rank: RankId,
    /// Its process. It is this one that hangs, and not its successor.
    pub pid: i32,
    /// Where it stands, if it has told; otherwise it was silent.
    pub stands: Option<Pulse>,
}

/// Tracks the activity of the ranks of this node.
#[derive(Debug)]
pub struct HangWatch {
    timeout: Duration,
    ranks: BTreeMap<RankId, Silence>,
}

#[derive(Clone, Debug)]
struct Silence {
    /// The activity at `since`.
    last: Activity,
    /// When the rank was last seen to be active.
    since: Instant,
    is_reported: bool,
}

impl HangWatch {
    /// Returns a watch by which a rank hangs if it is silent, or stands still, for `timeout`.
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
    pub fn observe(&mut self, now: Instant, ranks: &[(RankId, Activity)]) -> Vec<HungRank> {
        let running: BTreeSet<RankId> = ranks.iter().map(|(rank, _)| *rank).collect();
        self.ranks.retain(|rank, _| running.contains(rank));
        let mut hung = Vec::new();
        for (rank, activity) in ranks {
            let active = || Silence {
                last: activity.clone(),
                since: now,
                is_reported: false,
            };
            let silence = self.ranks.entry(*rank).or_insert_with(active);
            if silence.is_broken_by(activity, now) {
                *silence = active();
            } else if !silence.is_reported && silence.lasts(now) >= self.timeout {
                silence.is_reported = true;
                hung.push(HungRank {
                    rank: *rank,
                    pid: activity.pid,
                    stands: activity.pulse.clone().filter(is_stepping),
                });
            }
        }
        hung
    }
}

fn is_stepping(pulse: &Pulse) -> bool {
    pulse.phase == RankPhase::Stepping
}

impl Silence {
    fn lasts(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    fn is_broken_by(&self, activity: &Activity, now: Instant) -> bool {
        if activity.pid != self.last.pid || activity.pulse != self.last.pulse {
            return true;
        }
        if activity.pulse.as_ref().is_some_and(is_stepping) {
            return false;
        }
        // Less CPU time than before: one of its processes has ended.
        let Some(cpu) = activity.cpu.checked_sub(self.last.cpu) else {
            return true;
        };
        activity.written != self.last.written || cpu > self.lasts(now) / IDLE_PART
    }
}

#[cfg(test)]
mod tests {
    use jobs::time::now;

    use super::*;
    use crate::tests::rank;

    const TIMEOUT: Duration = Duration::from_secs(60);

    /// A watch, and when it began.
    struct Watched(HangWatch, Instant);

    impl Watched {
        fn new() -> Watched {
            Watched(HangWatch::new(TIMEOUT), now())
        }

        /// Returns which ranks are told to hang after so many seconds, and where they stand.
        fn at(&mut self, seconds: u64, ranks: &[(RankId, Activity)]) -> Vec<(usize, Option<u64>)> {
            let hung = self.look(seconds, ranks).into_iter();
            let stands = |hung: &HungRank| hung.stands.as_ref().map(|pulse| pulse.progress);
            hung.map(|hung| (hung.rank.index, stands(&hung))).collect()
        }

        fn look(&mut self, seconds: u64, ranks: &[(RankId, Activity)]) -> Vec<HungRank> {
            self.0.observe(self.1 + Duration::from_secs(seconds), ranks)
        }
    }

    fn activity(cpu_ms: u64, written: u64) -> Activity {
        Activity {
            pid: 1234,
            cpu: Duration::from_millis(cpu_ms),
            written,
            pulse: None,
        }
    }

    /// Returns the activity of a rank that is as busy as it can be.
    fn busy(seconds: u64, phase: RankPhase, progress: u64) -> [(RankId, Activity); 1] {
        let pulse = Pulse {
            progress,
            phase,
            ..Pulse::default()
        };
        let activity = Activity {
            pulse: Some(pulse),
            ..activity(seconds * 1000, seconds)
        };
        [(rank(0), activity)]
    }

    #[test]
    fn a_silent_rank_hangs_once_its_time_is_over() {
        let mut watch = Watched::new();
        let ranks = [(rank(0), activity(10, 5))];
        assert_eq!(watch.look(0, &ranks), []);
        assert_eq!(watch.look(59, &ranks), []);
        assert_eq!(watch.at(60, &ranks), [(0, None)]);
        assert_eq!(watch.look(99, &ranks), [], "it is told once");
    }

    #[test]
    fn output_and_cpu_time_are_signs_of_life() {
        let mut watch = Watched::new();
        let both = |cpu, written| [(rank(0), activity(cpu, 0)), (rank(1), activity(0, written))];
        watch.look(0, &both(0, 0));
        assert_eq!(watch.look(50, &both(900, 1)), []);
        assert_eq!(watch.look(100, &both(900, 1)), []);
        assert_eq!(watch.at(110, &both(900, 1)), [(0, None), (1, None)]);
    }

    #[test]
    fn a_rank_that_only_wakes_up_now_and_then_hangs() {
        let mut watch = Watched::new();
        for second in 0..60 {
            let hung = watch.look(second, &[(rank(0), activity(second, 0))]);
            assert_eq!(hung, [], "after {second} s");
        }
        let hung = watch.at(60, &[(rank(0), activity(60, 0))]);
        assert_eq!(hung, [(0, None)]);
    }

    #[test]
    fn a_rank_that_goes_on_can_hang_again() {
        let mut watch = Watched::new();
        let written = |bytes| [(rank(0), activity(0, bytes))];
        watch.look(0, &written(0));
        assert_eq!(watch.at(60, &written(0)), [(0, None)]);
        assert_eq!(watch.look(70, &written(1)), []);
        assert_eq!(watch.at(130, &written(1)), [(0, None)]);
    }

    #[test]
    fn a_restarted_rank_gets_its_whole_time() {
        let mut watch = Watched::new();
        watch.look(0, &[(rank(0), activity(500, 0))]);
        watch.look(50, &[]);
        let new = [(rank(0), activity(500, 0))];
        assert_eq!(watch.look(59, &new), []);
        assert_eq!(watch.look(118, &new), []);
        assert_eq!(watch.at(119, &new), [(0, None)]);
    }

    #[test]
    fn a_rank_that_was_restarted_between_two_looks_gets_its_whole_time_too() {
        let mut watch = Watched::new();
        let silent = activity(0, 0);
        let rank = |pid| {
            [(
                rank(0),
                Activity {
                    pid,
                    ..silent.clone()
                },
            )]
        };
        watch.look(0, &rank(7));
        assert_eq!(watch.look(59, &rank(8)), []);
        assert_eq!(watch.look(118, &rank(8)), []);
        let hung = watch.look(119, &rank(8));
        assert_eq!(hung.iter().map(|hung| hung.pid).collect::<Vec<_>>(), [8]);
    }

    #[test]
    fn a_rank_whose_environments_step_hangs_without_progress_however_busy_it_is() {
        let mut watch = Watched::new();
        for second in 0..100 {
            let hung = watch.look(second, &busy(second, RankPhase::Stepping, second));
            assert_eq!(hung, [], "it moves at {second} s");
        }
        let still = |second| busy(second, RankPhase::Stepping, 99);
        assert_eq!(watch.look(158, &still(158)), []);
        assert_eq!(watch.at(159, &still(159)), [(0, Some(99))]);
        assert_eq!(watch.look(500, &still(500)), []);
    }

    #[test]
    fn a_rank_that_prepares_is_judged_by_what_it_computes() {
        let mut watch = Watched::new();
        for second in 0..200 {
            let hung = watch.look(second, &busy(second, RankPhase::Preparing, 7));
            assert_eq!(hung, [], "it computes at {second} s");
        }
        let silent = busy(199, RankPhase::Preparing, 7);
        assert_eq!(watch.look(258, &silent), []);
        assert_eq!(watch.at(259, &silent), [(0, None)]);
    }

    #[test]
    fn a_rank_that_waits_for_others_and_is_awake_does_not_hang() {
        let mut watch = Watched::new();
        for second in 0..200 {
            let waits = busy(0, RankPhase::Waiting, second);
            assert_eq!(watch.look(second, &waits), []);
        }
        let asleep = busy(0, RankPhase::Waiting, 199);
        assert_eq!(watch.at(259, &asleep), [(0, None)]);
    }

    #[test]
    fn a_rank_that_begins_to_step_gets_its_whole_time() {
        let mut watch = Watched::new();
        watch.look(0, &busy(0, RankPhase::Preparing, 7));
        watch.look(50, &busy(50, RankPhase::Stepping, 7));
        let still = |second| busy(second, RankPhase::Stepping, 7);
        assert_eq!(watch.look(109, &still(109)), []);
        assert_eq!(watch.at(110, &still(110)), [(0, Some(7))]);
    }
}
