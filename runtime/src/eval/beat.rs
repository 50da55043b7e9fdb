//! Signs of life: which rank has moved, and which has been still for too long. Pure.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jobs::episode::Episode;
use serde::{Deserialize, Serialize};

use crate::eval::meter::GpuBusy;

/// What a rank tells the others about itself, once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Grows with every step.
    pub steps: u64,
    /// Name of the job under way.
    pub job: String,
    /// Episodes of that job that are done.
    pub done: u64,
    /// Of how many; 0 if that is not known.
    pub of: u64,
    /// Of the done ones, solved.
    pub solved: u64,
    /// Waits for the others with nothing left to do.
    pub arrived: bool,
    /// Episodes of all jobs that this rank has ended in this launch.
    #[serde(default)]
    pub ended: u64,
    /// Of those, solved.
    #[serde(default)]
    pub ended_solved: u64,
    /// Of those, broken by an error.
    #[serde(default)]
    pub errors: u64,
    /// Episodes of all jobs that are this rank's in this launch; 0 if that is not known.
    #[serde(default)]
    pub own: u64,
    /// Jobs, or parts of them, that this rank has ended in this launch.
    #[serde(default)]
    pub jobs_done: u64,
    /// Jobs, or parts of them, that are this rank's.
    #[serde(default)]
    pub jobs: u64,
    /// Seconds in which environments were at work.
    #[serde(default)]
    pub sim_s: f64,
    /// Seconds in which the policy inferred.
    #[serde(default)]
    pub infer_s: f64,
    /// `cpu`, `cuda:1`.
    #[serde(default)]
    pub device: String,
    /// Bytes of the GPU that are taken, by whomever.
    #[serde(default)]
    pub gpu_used: u64,
    /// Bytes of the GPU.
    #[serde(default)]
    pub gpu_total: u64,
    /// For how long the GPU was at work, for whomever; `None` where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_busy: Option<GpuBusy>,
}

/// Last change of each rank's beat.
#[derive(Debug)]
pub struct Watch {
    last: Vec<(Beat, Instant)>,
    /// Ranks that do not come back.
    gone: BTreeSet<usize>,
}

impl Beat {
    /// Whether the rank itself has moved: what its GPU does may be others' doing.
    pub fn has_moved_since(&self, last: &Self) -> bool {
        let Self { gpu_used, gpu_total, gpu_busy, .. } = *last;
        Self { gpu_used, gpu_total, gpu_busy, ..self.clone() } != *last
    }

    /// Begins another job.
    pub fn of_job(&self, job: &str) -> Self {
        Self { job: job.to_owned(), done: 0, of: 0, solved: 0, ..self.clone() }
    }

    /// An episode has ended.
    pub fn count(&mut self, episode: &Episode) {
        let solved = u64::from(episode.success == Some(true));
        self.done += 1;
        self.solved += solved;
        self.ended += 1;
        self.ended_solved += solved;
        self.errors += u64::from(episode.error.is_some());
    }
}

impl Watch {
    /// Everyone counts as alive at `now`.
    pub fn new(world_size: usize, now: Instant) -> Self {
        Self { last: vec![(Beat::default(), now); world_size], gone: BTreeSet::new() }
    }

    /// A beat was read.
    pub fn on(&mut self, rank: usize, beat: Beat, now: Instant) {
        if let Some((last, since)) = self.last.get_mut(rank) {
            if beat.has_moved_since(last) {
                *since = now;
            }
            *last = beat;
        }
    }

    /// The launcher says that a rank does not come back.
    pub fn gone(&mut self, rank: usize) {
        self.gone.insert(rank);
    }

    /// Ranks that are neither there nor alive: gone, or still for `timeout`.
    pub fn lost(&self, now: Instant, timeout: Duration) -> Vec<usize> {
        let is_still = |since: Instant| now.saturating_duration_since(since) >= timeout;
        self.ranks(|rank, beat, since| !beat.arrived && (self.gone.contains(&rank) || is_still(since)))
    }

    /// Whether nobody has to be waited for.
    pub fn settled(&self, now: Instant, timeout: Duration) -> bool {
        self.ranks(|_, beat, _| beat.arrived).len() + self.lost(now, timeout).len() == self.last.len()
    }

    /// Last beat of each rank.
    pub fn beats(&self) -> impl Iterator<Item = &Beat> {
        self.last.iter().map(|(beat, _)| beat)
    }

    fn ranks(&self, wanted: impl Fn(usize, &Beat, Instant) -> bool) -> Vec<usize> {
        let picked = self.last.iter().enumerate().filter(|(rank, (beat, since))| wanted(*rank, beat, *since));
        picked.map(|(rank, _)| rank).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[expect(clippy::disallowed_methods, reason = "any instant will do as the origin")]
    fn origin() -> Instant {
        Instant::now()
    }

    #[test]
    fn a_slow_rank_is_waited_for_as_long_as_it_moves() {
        let start = origin();
        let mut watch = Watch::new(2, start);
        watch.on(0, Beat { arrived: true, ..Beat::default() }, start);
        for seconds in 1..100 {
            watch.on(1, Beat { steps: seconds, ..Beat::default() }, at(start, seconds));
            assert!(!watch.settled(at(start, seconds), TIMEOUT));
        }
        watch.on(1, Beat { arrived: true, ..Beat::default() }, at(start, 100));
        assert!(watch.settled(at(start, 100), TIMEOUT));
        assert!(watch.lost(at(start, 1000), TIMEOUT).is_empty(), "who has arrived is not lost");
    }

    #[test]
    fn a_rank_that_does_not_come_back_is_not_waited_for() {
        let start = origin();
        let mut watch = Watch::new(2, start);
        watch.on(0, Beat { arrived: true, ..Beat::default() }, start);
        watch.gone(1);
        assert_eq!(watch.lost(start, TIMEOUT), [1]);
        assert!(watch.settled(start, TIMEOUT));
    }

    #[test]
    fn a_rank_that_repeats_itself_is_lost_at_the_deadline() {
        let start = origin();
        let mut watch = Watch::new(2, start);
        watch.on(0, Beat { arrived: true, ..Beat::default() }, start);
        watch.on(1, Beat { steps: 5, ..Beat::default() }, at(start, 1));
        watch.on(1, Beat { steps: 5, gpu_used: 7, ..Beat::default() }, at(start, 10));
        assert!(watch.lost(at(start, 10), TIMEOUT).is_empty());
        assert_eq!(watch.lost(at(start, 11), TIMEOUT), [1]);
        assert!(watch.settled(at(start, 11), TIMEOUT));
    }
}
