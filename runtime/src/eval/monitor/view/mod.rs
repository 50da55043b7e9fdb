//! The state of a whole run, computed from the heartbeats of its ranks. Pure: no I/O and no clock
//! of its own.

pub mod snapshot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jobs::job::JobIndex;

use crate::eval::monitor::beat::{Beat, JobTally};
use crate::eval::monitor::view::snapshot::{RankView, RunSnapshot, time_for};

/// Time span over which rates are computed.
const WINDOW: Duration = Duration::from_secs(60);

/// What is known when the launch begins.
#[derive(Clone, Debug, Default)]
pub struct EarlierResults {
    /// Number of episodes of all jobs; `None` if a job does not say.
    pub expected: Option<u64>,
    /// Number of policies of the jobs. A success rate over several policies describes none of them.
    pub policies: usize,
    /// Whether some jobs are variants. A success rate over these depends on which somebody chose.
    pub has_variants: bool,
    /// The episodes that earlier launches have finished, by job.
    pub by_job: BTreeMap<JobIndex, JobTally>,
}

/// Heartbeats of a rank and their times, oldest first, as far back as the rates need them.
#[derive(Clone, Debug, Default)]
struct RankPast(VecDeque<(Instant, Beat)>);

/// The heartbeats of all ranks.
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
            pasts: vec![RankPast::default(); world_size],
        }
    }

    /// Adds the latest heartbeats of all ranks and returns the state of the run.
    pub fn on<'b>(
        &mut self,
        beats: impl IntoIterator<Item = &'b Beat>,
        now: Instant,
    ) -> RunSnapshot {
        let pasts = self.pasts.iter_mut().zip(beats);
        let ranks: Vec<_> = pasts.map(|(past, beat)| past.on(beat, now)).collect();
        let sum = |part: fn(&Beat) -> u64| ranks.iter().map(|rank| part(&rank.beat)).sum::<u64>();
        let before = &self.before;
        let earlier = |part: fn(&JobTally) -> u64| before.by_job.values().map(part).sum::<u64>();
        let mut by_job = before.by_job.clone();
        let tallies = ranks.iter().filter_map(|rank| rank.beat.by_job.as_ref());
        for (job, tally) in tallies.flatten() {
            let sum = by_job.entry(*job).or_default();
            sum.ended += tally.ended;
            sum.solved += tally.solved;
        }
        let mut snapshot = RunSnapshot {
            jobs_done: sum(|beat| beat.jobs_done),
            jobs: sum(|beat| beat.jobs),
            done: earlier(|job| job.ended) + sum(|beat| beat.ended),
            expected: before.expected,
            solved: earlier(|job| job.solved) + sum(|beat| beat.ended_solved),
            policies: before.policies,
            has_variants: before.has_variants,
            errors: sum(|beat| beat.errors),
            rate: ranks.iter().map(|rank| rank.rate).sum(),
            left: None,
            by_job,
            ranks,
        };
        snapshot.left = snapshot.time_left();
        snapshot
    }
}

impl RankPast {
    fn on(&mut self, beat: &Beat, now: Instant) -> RankView {
        let Self(beats) = self;
        let last = beats.back().map(|(_, last)| last);
        // The counters of a restarted rank begin at zero.
        if last.is_some_and(|last| beat.steps < last.steps || beat.ended < last.ended) {
            beats.clear();
        }
        let last = beats.back().map(|(_, last)| last);
        if last.is_none_or(|last| beat.has_moved_since(last)) {
            beats.push_back((now, beat.clone()));
        }
        let age = |at: Instant| now.saturating_duration_since(at);
        while beats.len() > 2 && age(beats[0].0) > WINDOW {
            beats.pop_front();
        }
        let (since, first) = &beats[0];
        let span = age(*since).as_secs_f64();
        let per_s = |amount: f64| if span > 0.0 { amount / span } else { 0.0 };
        let rate = per_s((beat.ended - first.ended) as f64);
        let busy_before = first.gpu_busy.unwrap_or_default();
        let still = beats.back().map(|(at, _)| age(*at));
        RankView {
            beat: beat.clone(),
            rate,
            steps_per_s: per_s((beat.steps - first.steps) as f64),
            sim_busy: per_s(beat.sim_s - first.sim_s).clamp(0.0, 1.0),
            infer_busy: per_s(beat.infer_s - first.infer_s).clamp(0.0, 1.0),
            gpu_busy: beat
                .gpu_busy
                .and_then(|busy| busy.since(busy_before).share()),
            left: match beat.own.saturating_sub(beat.ended) {
                _ if beat.arrived => Some(Duration::ZERO),
                _ if beat.own == 0 => None,
                0 => Some(Duration::ZERO),
                to_do => time_for(to_do, rate),
            },
            still: still.filter(|_| beat.steps > 0).unwrap_or_default(),
        }
    }
}
