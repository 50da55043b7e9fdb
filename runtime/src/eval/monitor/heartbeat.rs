//! Heartbeats of the ranks: which rank has made progress, and which has been silent for too long.
//! Pure: no I/O and no clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jobs::episode::Episode;
use jobs::job::JobIndex;
use serde::{Deserialize, Serialize};

use crate::eval::monitor::meter::GpuBusy;
use crate::eval::monitor::overview::{Overview, STILL};

/// The heartbeat of one rank: the state that it publishes to the other ranks once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Environment steps so far; grows with every step.
    pub steps: u64,
    /// Name of the job that the rank runs now.
    pub job: String,
    /// Number of finished episodes of that job.
    pub done: u64,
    /// Number of episodes that the job has for this rank; 0 if unknown.
    pub of: u64,
    /// Number of finished episodes of that job that were successful.
    pub solved: u64,
    /// True if the rank has no work left and waits for the others.
    pub arrived: bool,
    /// Number of episodes of all jobs that this rank has finished in this launch.
    #[serde(default)]
    pub ended: u64,
    /// Number of those episodes that were successful.
    #[serde(default)]
    pub ended_solved: u64,
    /// Number of those episodes that an error ended.
    #[serde(default)]
    pub errors: u64,
    /// Number of episodes of all jobs that are assigned to this rank in this launch; 0 if unknown.
    #[serde(default)]
    pub own: u64,
    /// Number of jobs, or parts of jobs, that this rank has finished in this launch.
    #[serde(default)]
    pub jobs_done: u64,
    /// Number of jobs that are assigned to this rank; 0 if any of them is split between ranks.
    #[serde(default)]
    pub jobs: u64,
    /// Seconds in which at least one environment was at work.
    #[serde(default)]
    pub sim_s: f64,
    /// Seconds in which the policy ran inference.
    #[serde(default)]
    pub infer_s: f64,
    /// Device of the policy: `cpu` or `cuda:1`.
    #[serde(default)]
    pub device: String,
    /// Bytes of GPU memory in use, by any process.
    #[serde(default)]
    pub gpu_used: u64,
    /// Total bytes of GPU memory.
    #[serde(default)]
    pub gpu_total: u64,
    /// Number of answers of environments and policy so far. Only the launcher of this node is told,
    /// see [`crate::eval::monitor::pulse`].
    #[serde(skip)]
    pub moves: u64,
    /// Whether episodes run, so that answers are to be expected.
    #[serde(skip)]
    pub is_stepping: bool,
    /// How long the GPU was busy, for any process; `None` if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_busy: Option<GpuBusy>,
    /// The finished episodes of this launch by job; `None` without a tracker, which alone needs
    /// them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_job: Option<BTreeMap<JobIndex, JobTally>>,
}

/// The finished episodes of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTally {
    /// Number of finished episodes.
    #[serde(rename = "n")]
    pub ended: u64,
    /// Number of those episodes that were successful.
    #[serde(rename = "s")]
    pub solved: u64,
}

/// Tracks the last heartbeat of each rank and the time at which it last changed.
#[derive(Debug)]
pub struct Watch {
    last: Vec<(Heartbeat, Instant)>,
    /// Ranks that the launcher does not restart.
    gone: BTreeSet<usize>,
}

impl Heartbeat {
    /// Returns whether the rank itself has made progress since `last`. The GPU fields are ignored,
    /// because other processes change them as well.
    pub fn has_moved_since(&self, last: &Self) -> bool {
        let Self {
            gpu_used,
            gpu_total,
            gpu_busy,
            ..
        } = *last;
        Self {
            gpu_used,
            gpu_total,
            gpu_busy,
            ..self.clone()
        } != *last
    }

    /// Returns the heartbeat at the start of the job `job`: the counters of the job are zero.
    pub fn of_job(&self, job: &str) -> Self {
        Self {
            job: job.to_owned(),
            done: 0,
            of: 0,
            solved: 0,
            is_stepping: false,
            ..self.clone()
        }
    }

    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        let solved = u64::from(episode.success == Some(true));
        self.done += 1;
        self.solved += solved;
        self.ended += 1;
        self.ended_solved += solved;
        self.errors += u64::from(episode.error.is_some());
        if let Some(by_job) = &mut self.by_job {
            by_job.entry(episode.job_index).or_default().count(episode);
        }
    }
}

impl JobTally {
    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        self.ended += 1;
        self.solved += u64::from(episode.success == Some(true));
    }

    /// Adds the counts of another rank or launch.
    pub fn add(&mut self, other: Self) {
        self.ended += other.ended;
        self.solved += other.solved;
    }
}

impl Watch {
    /// Creates the watch; every rank counts as alive at `now`.
    pub fn new(world_size: usize, now: Instant) -> Self {
        Self {
            last: vec![(Heartbeat::default(), now); world_size],
            gone: BTreeSet::new(),
        }
    }

    /// Records a heartbeat of `rank`.
    pub fn on(&mut self, rank: usize, beat: Heartbeat, now: Instant) {
        if let Some((last, since)) = self.last.get_mut(rank) {
            if beat.has_moved_since(last) {
                *since = now;
            }
            *last = beat;
        }
    }

    /// Records that `rank` is gone: the launcher does not restart it.
    pub fn gone(&mut self, rank: usize) {
        self.gone.insert(rank);
    }

    /// Returns the ranks that have not arrived and are lost: gone, or without progress for
    /// `timeout`.
    pub fn lost(&self, now: Instant, timeout: Duration) -> Vec<usize> {
        let is_still = |since: Instant| now.saturating_duration_since(since) >= timeout;
        self.ranks(|rank, beat, since| {
            !beat.arrived && (self.gone.contains(&rank) || is_still(since))
        })
    }

    /// Returns whether every rank has either arrived or is lost, so that the wait is over.
    pub fn settled(&self, now: Instant, timeout: Duration) -> bool {
        self.ranks(|_, beat, _| beat.arrived).len() + self.lost(now, timeout).len()
            == self.last.len()
    }

    /// Returns the ranks that have neither arrived nor are gone, and have made no progress for
    /// `time`.
    pub fn still(&self, now: Instant, time: Duration) -> Vec<usize> {
        self.ranks(|rank, beat, since| {
            !beat.arrived
                && !self.gone.contains(&rank)
                && now.saturating_duration_since(since) >= time
        })
    }

    /// Returns what other ranks must know of all.
    pub fn overview(&self, turn: u64, now: Instant) -> Overview {
        let still = self.still(now, STILL).into_iter();
        let seconds = |rank: usize| now.saturating_duration_since(self.last[rank].1).as_secs();
        Overview {
            turn,
            arrived: self.ranks(|_, beat, _| beat.arrived).len(),
            still: still.map(|rank| (rank, seconds(rank))).collect(),
            gone: self.ranks(|rank, beat, _| !beat.arrived && self.gone.contains(&rank)),
        }
    }

    /// Returns the last heartbeat of each rank, in rank order.
    pub fn beats(&self) -> impl Iterator<Item = &Heartbeat> {
        self.last.iter().map(|(beat, _)| beat)
    }

    fn ranks(&self, wanted: impl Fn(usize, &Heartbeat, Instant) -> bool) -> Vec<usize> {
        let picked = self
            .last
            .iter()
            .enumerate()
            .filter(|(rank, (beat, since))| wanted(*rank, beat, *since));
        picked.map(|(rank, _)| rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn moved(steps: u64) -> Heartbeat {
        Heartbeat {
            steps,
            ..Heartbeat::default()
        }
    }

    fn arrived() -> Heartbeat {
        Heartbeat {
            arrived: true,
            ..Heartbeat::default()
        }
    }

    /// Watches several ranks, of which rank 0 has arrived at once.
    fn watch(ranks: usize) -> (Watch, Instant) {
        let start = now();
        let mut watch = Watch::new(ranks, start);
        watch.on(0, arrived(), start);
        (watch, start)
    }

    #[test]
    fn a_slow_rank_is_waited_for_as_long_as_it_moves() {
        let (mut watch, start) = watch(2);
        for seconds in 1..100 {
            watch.on(1, moved(seconds), at(start, seconds));
            assert!(!watch.settled(at(start, seconds), TIMEOUT));
        }
        watch.on(1, arrived(), at(start, 100));
        assert!(watch.settled(at(start, 100), TIMEOUT));
        let lost = watch.lost(at(start, 1000), TIMEOUT);
        assert!(lost.is_empty(), "who has arrived is not lost");
    }

    #[test]
    fn a_rank_that_does_not_come_back_is_not_waited_for() {
        let (mut watch, start) = watch(2);
        watch.gone(1);
        assert_eq!(watch.lost(start, TIMEOUT), [1]);
        assert!(watch.settled(start, TIMEOUT));
    }

    #[test]
    fn an_overview_tells_of_lost_ranks_what_the_heartbeats_tell() {
        let (mut watch, start) = watch(5);
        watch.on(1, arrived(), start);
        watch.gone(1);
        watch.gone(2);
        watch.on(3, moved(1), at(start, 9));
        for seconds in [9, 10, 19, 20] {
            let now = at(start, seconds);
            let overview = watch.overview(1, now);
            let told = (overview.lost(TIMEOUT), overview.settled(5, TIMEOUT));
            let known = (watch.lost(now, TIMEOUT), watch.settled(now, TIMEOUT));
            assert_eq!(told, known, "{seconds}");
        }
        assert!(watch.overview(1, at(start, 20)).settled(5, TIMEOUT));
    }

    #[test]
    fn a_rank_that_repeats_itself_is_lost_at_the_deadline() {
        let (mut watch, start) = watch(2);
        watch.on(1, moved(5), at(start, 1));
        let same = Heartbeat {
            gpu_used: 7,
            ..moved(5)
        };
        watch.on(1, same, at(start, 10));
        assert!(watch.lost(at(start, 10), TIMEOUT).is_empty());
        assert_eq!(watch.lost(at(start, 11), TIMEOUT), [1]);
        assert!(watch.settled(at(start, 11), TIMEOUT));
    }
}
