//! The state of a whole run, computed from the heartbeats of its ranks. Pure: no I/O and no clock
//! of its own.

pub mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jobs::job::JobIndex;

use crate::eval::monitor::beat::{Beat, JobTally};
use crate::eval::monitor::view::snapshot::{RankView, RunSnapshot, clock};

/// Maximum number of remarks at a time.
const REMARKS: usize = 3;

/// Time span over which rates are computed.
const WINDOW: Duration = Duration::from_secs(60);

/// A rank is reported as slow if it needs this many times as long as the median rank.
const SLOW: f64 = 1.5;

/// A rank is reported as still after this long without a step.
const STILL: Duration = Duration::from_secs(30);

/// What is known when the launch begins.
#[derive(Clone, Debug, Default)]
pub struct EarlierResults {
    /// Number of episodes of all jobs; `None` if a job does not say.
    pub expected: Option<u64>,
    /// Number of episodes that earlier launches have finished.
    pub done: u64,
    /// Number of those episodes that were successful.
    pub solved: u64,
    /// Number of policies of the jobs. A success rate over several policies describes none of them.
    pub policies: usize,
    /// Whether some jobs are variants. A success rate over these depends on which somebody chose.
    pub has_variants: bool,
    /// The episodes that earlier launches have finished, by job.
    pub by_job: BTreeMap<JobIndex, JobTally>,
}

/// Beats of a rank, oldest first.
#[derive(Debug, Default)]
struct RankPast {
    beats: VecDeque<(Instant, Beat)>,
}

/// The heartbeats of all ranks, as far back as the rates need them.
#[derive(Debug)]
pub struct RunView {
    before: EarlierResults,
    pasts: Vec<RankPast>,
}

impl RunView {
    /// Creates a view without heartbeats.
    pub fn new(before: EarlierResults, world_size: usize) -> Self {
        Self {
            before,
            pasts: (0..world_size).map(|_| RankPast::default()).collect(),
        }
    }

    /// Adds the latest heartbeats of all ranks and returns the state of the run.
    pub fn on<'b>(
        &mut self,
        beats: impl IntoIterator<Item = &'b Beat>,
        now: Instant,
    ) -> RunSnapshot {
        let ranks: Vec<_> = self
            .pasts
            .iter_mut()
            .zip(beats)
            .map(|(past, beat)| past.on(beat, now))
            .collect();
        let sum = |part: fn(&Beat) -> u64| ranks.iter().map(|rank| part(&rank.beat)).sum::<u64>();
        let done = self.before.done + sum(|beat| beat.ended);
        let mut snapshot = RunSnapshot {
            jobs_done: sum(|beat| beat.jobs_done),
            jobs: sum(|beat| beat.jobs),
            done,
            expected: self.before.expected,
            solved: self.before.solved + sum(|beat| beat.ended_solved),
            policies: self.before.policies,
            has_variants: self.before.has_variants,
            errors: sum(|beat| beat.errors),
            rate: ranks.iter().map(|rank| rank.rate).sum(),
            left: None,
            remarks: Vec::new(),
            by_job: by_job(&self.before, &ranks),
            ranks,
        };
        snapshot.left = snapshot.time_left();
        snapshot.remarks = self.remarks(&snapshot, now);
        snapshot
    }

    fn remarks(&self, snapshot: &RunSnapshot, now: Instant) -> Vec<String> {
        let mut lefts: Vec<f64> = snapshot
            .ranks
            .iter()
            .filter_map(|rank| Some(rank.left?.as_secs_f64()))
            .collect();
        lefts.sort_by(f64::total_cmp);
        let middle = lefts
            .get((lefts.len().max(1) - 1) / 2)
            .copied()
            .unwrap_or(0.0);
        let remark = |(rank, (view, past)): (usize, (&RankView, &RankPast))| {
            if view.beat.arrived {
                return None;
            }
            if let Some(still) = past.still(now).filter(|still| *still >= STILL) {
                return Some(format!("rank {rank}: no step for {}", clock(still)));
            }
            let left = view.left?.as_secs_f64();
            let is_slow = lefts.len() > 1 && left > SLOW * middle && left - middle > 60.0;
            is_slow.then(|| {
                format!(
                    "rank {rank} is slow: {} left, {} in the middle",
                    clock(view.left.unwrap_or_default()),
                    clock(Duration::from_secs_f64(middle))
                )
            })
        };
        let mut remarks: Vec<_> = snapshot
            .ranks
            .iter()
            .zip(&self.pasts)
            .enumerate()
            .filter_map(remark)
            .collect();
        if remarks.len() > REMARKS {
            let more = remarks.split_off(REMARKS).len();
            remarks.push(format!("{more} more ranks are slow or still"));
        }
        remarks
    }
}

/// Adds what the ranks have finished of each job to what was finished before.
fn by_job(before: &EarlierResults, ranks: &[RankView]) -> BTreeMap<JobIndex, JobTally> {
    let mut sums = before.by_job.clone();
    let tallies = ranks.iter().filter_map(|rank| rank.beat.by_job.as_ref());
    for (job, tally) in tallies.flatten() {
        let sum = sums.entry(*job).or_default();
        sum.ended += tally.ended;
        sum.solved += tally.solved;
    }
    sums
}

impl RankPast {
    fn on(&mut self, beat: &Beat, now: Instant) -> RankView {
        // The counters of a restarted rank begin at zero.
        if self
            .beats
            .back()
            .is_some_and(|(_, last)| beat.steps < last.steps || beat.ended < last.ended)
        {
            self.beats.clear();
        }
        if self
            .beats
            .back()
            .is_none_or(|(_, last)| beat.has_moved_since(last))
        {
            self.beats.push_back((now, beat.clone()));
        }
        while self.beats.len() > 2
            && self
                .beats
                .front()
                .is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW)
        {
            self.beats.pop_front();
        }
        let (since, first) = self
            .beats
            .front()
            .map_or((now, beat), |(at, beat)| (*at, beat));
        let span = now.saturating_duration_since(since).as_secs_f64();
        let per_s = |amount: f64| if span > 0.0 { amount / span } else { 0.0 };
        let rate = per_s((beat.ended - first.ended) as f64);
        let to_do = beat.own.saturating_sub(beat.ended);
        let left = (beat.own > 0 && (rate > 0.0 || to_do == 0)).then(|| match to_do {
            0 => Duration::ZERO,
            count => Duration::from_secs_f64((count as f64 / rate).min(1e9)),
        });
        RankView {
            beat: beat.clone(),
            rate,
            steps_per_s: per_s((beat.steps - first.steps) as f64),
            sim_busy: per_s(beat.sim_s - first.sim_s).clamp(0.0, 1.0),
            infer_busy: per_s(beat.infer_s - first.infer_s).clamp(0.0, 1.0),
            gpu_busy: beat
                .gpu_busy
                .and_then(|busy| busy.since(first.gpu_busy.unwrap_or_default()).share()),
            left: if beat.arrived {
                Some(Duration::ZERO)
            } else {
                left
            },
        }
    }

    /// Returns how long the rank has made no progress.
    fn still(&self, now: Instant) -> Option<Duration> {
        let (at, beat) = self.beats.back()?;
        (beat.steps > 0).then(|| now.saturating_duration_since(*at))
    }
}
