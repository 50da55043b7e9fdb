//! The state of a whole run, computed from the heartbeats of its ranks, and how it is shown at one
//! moment: a summary or a table. Pure: no I/O and no clock of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::job::JobIndex;
use jobs::table::Table;
use report::stats::Solved;

use crate::eval::monitor::beat::{Beat, JobTally};

#[cfg(test)]
mod tests;

/// Time span over which rates are computed.
const WINDOW: Duration = Duration::from_secs(60);

/// What the table has of each rank.
const HEAD: [&str; 9] = [
    "rank", "job", "episodes", "solved", "steps/s", "sim", "infer", "left", "device",
];

/// Letters of the name of a job in the table, at most.
const WIDEST_NAME: usize = 32;

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

/// Maximum number of remarks at a time.
const REMARKS: usize = 3;

/// A rank is reported as slow if it needs this many times as long as the median rank.
const SLOW: f64 = 1.5;

/// It also has to need this much longer.
const SLOW_BY: Duration = Duration::from_secs(60);

/// A rank is reported as still after this long without a step.
const STILL: Duration = Duration::from_secs(30);

/// The state of a whole run at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSnapshot {
    /// One entry for each rank.
    pub ranks: Vec<RankView>,
    /// Number of jobs, or parts of jobs, that ranks have finished in this launch.
    pub jobs_done: u64,
    /// Number of jobs that are assigned to ranks; 0 with leases, or if jobs are split.
    pub jobs: u64,
    /// Number of finished episodes, including those of earlier launches.
    pub done: u64,
    /// Number of episodes in all, if known.
    pub expected: Option<u64>,
    /// Number of finished episodes that were successful.
    pub solved: u64,
    /// Number of policies of the jobs.
    pub policies: usize,
    /// Whether some jobs are variants.
    pub has_variants: bool,
    /// Number of finished episodes that an error ended.
    pub errors: u64,
    /// Episodes per second over the last minute.
    pub rate: f64,
    /// Time until the last rank is done, at the current rates.
    pub left: Option<Duration>,
    /// Finished episodes by job; without a tracker, only those of earlier launches.
    pub by_job: BTreeMap<JobIndex, JobTally>,
}

/// The state of one rank at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RankView {
    /// Its last heartbeat.
    pub beat: Beat,
    /// Episodes per second over the last minute.
    pub rate: f64,
    /// Steps per second over the last minute.
    pub steps_per_s: f64,
    /// Share of the last minute in which environments were at work, 0 to 1.
    pub sim_busy: f64,
    /// Share of the last minute in which the policy ran inference, 0 to 1.
    pub infer_busy: f64,
    /// Share of the last minute in which its GPU was busy, for any process; `None` if the driver
    /// does not report it.
    pub gpu_busy: Option<f64>,
    /// Time until the rank is done.
    pub left: Option<Duration>,
    /// How long it has made no progress after its first step.
    pub still: Duration,
}

impl RunSnapshot {
    /// Returns the time until the slowest rank is done; with leases, until all ranks together are.
    pub fn time_left(&self) -> Option<Duration> {
        let busy = || self.ranks.iter().filter(|rank| !rank.beat.arrived);
        if busy().all(|rank| rank.left.is_some()) {
            return busy().filter_map(|rank| rank.left).max();
        }
        time_for(self.expected?.saturating_sub(self.done), self.rate)
    }

    /// Returns remarks about ranks that are slow or still.
    pub fn remarks(&self) -> Vec<String> {
        let mut lefts: Vec<_> = self.ranks.iter().filter_map(|rank| rank.left).collect();
        lefts.sort_unstable();
        let middle = lefts.get((lefts.len().max(1) - 1) / 2);
        let middle = middle.copied().unwrap_or_default();
        let slow = middle.mul_f64(SLOW).max(middle + SLOW_BY);
        let mut remarks = Vec::new();
        for (rank, view) in self.ranks.iter().enumerate() {
            let left = view.left.filter(|left| *left > slow && lefts.len() > 1);
            if view.beat.arrived {
                continue;
            } else if view.still >= STILL {
                remarks.push(format!("rank {rank}: no step for {}", clock(view.still)));
            } else if let Some(left) = left {
                let (left, middle) = (clock(left), clock(middle));
                remarks.push(format!(
                    "rank {rank} is slow: {left} left, {middle} in the middle"
                ));
            }
        }
        if remarks.len() > REMARKS {
            let more = remarks.split_off(REMARKS).len();
            remarks.push(format!("{more} more ranks are slow or still"));
        }
        remarks
    }

    /// Returns one line about the whole run.
    pub fn summary(&self) -> String {
        let of = self.expected.map(|expected| format!("/{expected}"));
        let of = of.unwrap_or_default();
        let jobs = match self.jobs {
            0 => String::new(),
            jobs => format!("{}/{jobs} jobs, ", self.jobs_done),
        };
        let mut text = format!("{jobs}{}{of} episodes", self.done);
        if self.policies > 1 {
            text += &format!(", {} solved by {} policies", self.solved, self.policies);
        } else if self.has_variants {
            text += &format!(", {} solved, with variations", self.solved);
        } else if self.done > 0 {
            let solved = Solved::new(self.solved, self.done);
            text += &format!(", {}", solved.share());
        }
        if self.errors > 0 {
            text += &format!(", {}", counted(self.errors, "error"));
        }
        if self.rate > 0.0 {
            text += &format!(", {} episodes/s", short(self.rate));
        }
        if let Some(left) = self.left {
            text += &format!(", {} left", clock(left));
        }
        text
    }

    /// Returns a table with a row for each rank and a line for all. At most `rows` ranks are shown:
    /// those that need the most time.
    pub fn table(&self, rows: usize) -> Vec<String> {
        let mut shown: Vec<usize> = (0..self.ranks.len()).collect();
        if shown.len() > rows {
            shown.sort_by_key(|rank| {
                std::cmp::Reverse(self.ranks[*rank].left.unwrap_or(Duration::MAX))
            });
            shown.truncate(rows);
            shown.sort_unstable();
        }
        let left_out = self.ranks.len() - shown.len();
        let table = Table::new(HEAD, shown.into_iter().map(|rank| self.row(rank)));
        let mut lines = table.columns(&[0, 2, 3, 4, 5, 6, 7], usize::MAX);
        if left_out > 0 {
            lines.push(format!(
                "      … and {left_out} ranks that will be done before them"
            ));
        }
        lines.push(format!(" all  {}", self.summary()));
        let remarks = self.remarks().into_iter();
        lines.extend(remarks.map(|remark| format!("      {remark}")));
        lines
    }

    fn row(&self, rank: usize) -> [String; HEAD.len()] {
        let view = &self.ranks[rank];
        let beat = &view.beat;
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let mut device = beat.device.clone();
        if let Some(share) = view.gpu_busy {
            device += &format!(" {} busy", percent(share));
        }
        if beat.gpu_total > 0 {
            let [used, total] = [beat.gpu_used, beat.gpu_total].map(|bytes| ByteSize(bytes).gib());
            device += &format!(" {used:.1}/{total:.1} GiB");
        }
        [
            format!("{rank:>4}"),
            match beat.arrived {
                true => "done".to_owned(),
                false => beat.job.chars().take(WIDEST_NAME).collect(),
            },
            match beat.of {
                0 => beat.done.to_string(),
                of => format!("{}/{of}", beat.done),
            },
            beat.solved.to_string(),
            short(view.steps_per_s),
            percent(view.sim_busy),
            percent(view.infer_busy),
            view.left.map_or_else(|| "?".to_owned(), clock),
            device,
        ]
    }
}

/// Returns the time that so many episodes take at so many a second.
pub fn time_for(episodes: u64, rate: f64) -> Option<Duration> {
    (rate > 0.0).then(|| Duration::from_secs_f64((episodes as f64 / rate).min(1e9)))
}

/// Formats a number with about three digits.
fn short(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Formats a duration as `1:02:03` or `2:03`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}
