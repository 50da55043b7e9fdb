//! The state of a whole run, computed from the heartbeats of its ranks. Pure: no I/O and no clock
//! of its own.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use report::stats::wilson95;

use crate::eval::monitor::heartbeat::Heartbeat;

/// Maximum number of remarks at a time.
const REMARKS: usize = 3;

/// Time span over which rates are computed.
const WINDOW: Duration = Duration::from_secs(60);

/// A rank is reported as slow if it needs this many times as long as the median rank.
const SLOW: f64 = 1.5;

/// A rank is reported as still after this long without a step.
const STILL: Duration = Duration::from_secs(30);

/// What is known when the launch begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Before {
    /// Number of episodes of all jobs; `None` if a job does not say.
    pub expected: Option<u64>,
    /// Number of episodes that earlier launches have finished.
    pub done: u64,
    /// Number of those episodes that were successful.
    pub solved: u64,
    /// Number of policies of the jobs. A success rate over several policies describes none of them.
    pub policies: usize,
}

/// The state of a whole run at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// One entry for each rank.
    pub ranks: Vec<RankView>,
    /// Number of jobs, or parts of jobs, that ranks have finished in this launch.
    pub jobs_done: u64,
    /// Number of jobs, or parts of jobs, that are assigned to ranks; 0 with leases.
    pub jobs: u64,
    /// Number of finished episodes, including those of earlier launches.
    pub done: u64,
    /// Number of episodes in all, if known.
    pub expected: Option<u64>,
    /// Number of finished episodes that were successful.
    pub solved: u64,
    /// Number of policies of the jobs.
    pub policies: usize,
    /// Number of finished episodes that an error ended.
    pub errors: u64,
    /// Episodes per second over the last minute.
    pub rate: f64,
    /// Time until the last rank is done, at the current rates.
    pub left: Option<Duration>,
    /// Remarks about ranks that are slow or still.
    pub remarks: Vec<String>,
}

/// The state of one rank at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct RankView {
    /// Its last heartbeat.
    pub beat: Heartbeat,
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
}

/// Heartbeats of a rank, oldest first.
#[derive(Debug, Default)]
struct Past {
    beats: VecDeque<(Instant, Heartbeat)>,
}

/// The heartbeats of all ranks, as far back as the rates need them.
#[derive(Debug)]
pub struct View {
    before: Before,
    pasts: Vec<Past>,
}

impl View {
    /// Creates a view without heartbeats.
    pub fn new(before: Before, world_size: usize) -> Self {
        Self {
            before,
            pasts: (0..world_size).map(|_| Past::default()).collect(),
        }
    }

    /// Adds the latest heartbeats of all ranks and returns the state of the run.
    pub fn on(&mut self, beats: &[Heartbeat], now: Instant) -> Snapshot {
        let ranks: Vec<_> = self
            .pasts
            .iter_mut()
            .zip(beats)
            .map(|(past, beat)| past.on(beat, now))
            .collect();
        let sum =
            |part: fn(&Heartbeat) -> u64| ranks.iter().map(|rank| part(&rank.beat)).sum::<u64>();
        let done = self.before.done + sum(|beat| beat.ended);
        let mut snapshot = Snapshot {
            jobs_done: sum(|beat| beat.jobs_done),
            jobs: sum(|beat| beat.jobs),
            done,
            expected: self.before.expected,
            solved: self.before.solved + sum(|beat| beat.ended_solved),
            policies: self.before.policies,
            errors: sum(|beat| beat.errors),
            rate: ranks.iter().map(|rank| rank.rate).sum(),
            left: None,
            remarks: Vec::new(),
            ranks,
        };
        snapshot.left = snapshot.time_left();
        snapshot.remarks = self.remarks(&snapshot, now);
        snapshot
    }

    fn remarks(&self, snapshot: &Snapshot, now: Instant) -> Vec<String> {
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
        let remark = |(rank, (view, past)): (usize, (&RankView, &Past))| {
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

impl Past {
    fn on(&mut self, beat: &Heartbeat, now: Instant) -> RankView {
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

impl Snapshot {
    /// Returns the time until the slowest rank is done; with leases, until all ranks together are.
    fn time_left(&self) -> Option<Duration> {
        let busy = || self.ranks.iter().filter(|rank| !rank.beat.arrived);
        if busy().all(|rank| rank.left.is_some()) {
            return busy().filter_map(|rank| rank.left).max();
        }
        let to_do = self.expected?.saturating_sub(self.done);
        (self.rate > 0.0).then(|| Duration::from_secs_f64((to_do as f64 / self.rate).min(1e9)))
    }

    /// Returns one line about the whole run.
    pub fn summary(&self) -> String {
        let of = self
            .expected
            .map_or_else(String::new, |expected| format!("/{expected}"));
        let jobs = if self.jobs > 0 {
            format!("{}/{} jobs, ", self.jobs_done, self.jobs)
        } else {
            String::new()
        };
        let mut text = format!("{jobs}{}{of} episodes", self.done);
        if self.policies > 1 {
            text += &format!(", {} solved by {} policies", self.solved, self.policies);
        } else if let Some([low, high]) = wilson95(self.solved, self.done) {
            let rate = self.solved as f64 / self.done as f64;
            text += &format!(
                ", {:.1} % solved (95 %: {:.1} to {:.1})",
                rate * 100.0,
                low * 100.0,
                high * 100.0
            );
        }
        if self.errors > 0 {
            text += &format!(", {} errors", self.errors);
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
        let width = shown
            .iter()
            .map(|rank| self.ranks[*rank].beat.job.chars().count())
            .max()
            .unwrap_or(0)
            .clamp(3, 32);
        let has_gpus = self.ranks.iter().any(|rank| rank.gpu_busy.is_some());
        let mut lines = vec![format!(
            "{:>4}  {:<width$}  {:>11}  {:>6}  {:>8}  {:>4}  {:>5}{}  {:>8}  device",
            "rank",
            "job",
            "episodes",
            "solved",
            "steps/s",
            "sim",
            "infer",
            if has_gpus { "   gpu" } else { "" },
            "left"
        )];
        lines.extend(shown.iter().map(|rank| self.row(*rank, width, has_gpus)));
        if shown.len() < self.ranks.len() {
            lines.push(format!(
                "      … and {} ranks that will be done before them",
                self.ranks.len() - shown.len()
            ));
        }
        lines.push(format!(" all  {}", self.summary()));
        lines.extend(self.remarks.iter().map(|remark| format!("      {remark}")));
        lines
    }

    fn row(&self, rank: usize, width: usize, has_gpus: bool) -> String {
        let view = &self.ranks[rank];
        let beat = &view.beat;
        let job: String = match beat.arrived {
            true => "done".to_owned(),
            false => beat.job.chars().take(width).collect(),
        };
        let episodes = if beat.of > 0 {
            format!("{}/{}", beat.done, beat.of)
        } else {
            beat.done.to_string()
        };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        let left = view.left.map_or_else(|| "?".to_owned(), clock);
        let gpu = match (has_gpus, view.gpu_busy) {
            (false, _) => String::new(),
            (true, None) => format!("  {:>4}", "-"),
            (true, Some(share)) => format!("  {:>4}", percent(share)),
        };
        let device = match (beat.gpu_used, beat.gpu_total) {
            (used, total) if total > 0 => {
                format!("{} {:.1}/{:.1} GiB", beat.device, gib(used), gib(total))
            }
            _ => beat.device.clone(),
        };
        format!(
            "{rank:>4}  {job:<width$}  {episodes:>11}  {:>6}  {:>8}  {:>4}  {:>5}{gpu}  {left:>8}  {device}",
            beat.solved,
            short(view.steps_per_s),
            percent(view.sim_busy),
            percent(view.infer_busy),
        )
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::now;
    use crate::eval::monitor::meter::GpuBusy;

    fn beat(steps: u64, ended: u64, own: u64) -> Heartbeat {
        Heartbeat {
            job: "push".to_owned(),
            steps,
            ended,
            ended_solved: ended / 2,
            own,
            jobs: 1,
            done: ended,
            of: own,
            solved: ended / 2,
            device: "cpu".to_owned(),
            sim_s: steps as f64 / 20.0,
            ..Heartbeat::default()
        }
    }

    fn after(seconds: u64, start: Instant) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn rates_and_the_time_left_are_those_of_the_last_minute() {
        let start = now();
        let mut view = View::new(
            Before {
                expected: Some(220),
                done: 20,
                solved: 10,
                policies: 1,
            },
            2,
        );
        view.on(&[beat(0, 0, 100), beat(0, 0, 100)], start);
        let snapshot = view.on(&[beat(100, 10, 100), beat(50, 20, 100)], after(10, start));
        assert_eq!(
            (snapshot.done, snapshot.solved, snapshot.rate),
            (50, 25, 3.0)
        );
        assert_eq!(
            snapshot.left,
            Some(Duration::from_secs(90)),
            "the slower rank has 90 left at 1 a second"
        );
        assert_eq!(
            (snapshot.ranks[0].steps_per_s, snapshot.ranks[0].sim_busy),
            (10.0, 0.5)
        );
        assert_eq!(
            snapshot.summary(),
            "0/2 jobs, 50/220 episodes, 50.0 % solved (95 %: 36.6 to 63.4), 3.0 episodes/s, 1:30 left"
        );
    }

    #[test]
    fn several_policies_have_no_rate_in_common() {
        let mut view = View::new(
            Before {
                expected: Some(100),
                policies: 3,
                ..Before::default()
            },
            1,
        );
        let snapshot = view.on(&[beat(10, 6, 100)], now());
        assert_eq!(
            snapshot.summary(),
            "0/1 jobs, 6/100 episodes, 3 solved by 3 policies"
        );
    }

    #[test]
    fn ranks_that_take_what_comes_are_done_together() {
        let start = now();
        let mut view = View::new(
            Before {
                expected: Some(100),
                ..Before::default()
            },
            2,
        );
        view.on(&[beat(0, 0, 0), beat(0, 0, 0)], start);
        let snapshot = view.on(&[beat(10, 5, 0), beat(10, 15, 0)], after(10, start));
        assert_eq!(snapshot.left, Some(Duration::from_secs(40)));
    }

    #[test]
    fn a_slow_rank_and_a_still_one_are_named() {
        let start = now();
        let mut view = View::new(Before::default(), 3);
        view.on(&[beat(1, 0, 400), beat(1, 0, 400), beat(1, 0, 400)], start);
        let beats = [beat(90, 40, 400), beat(90, 40, 400), beat(9, 4, 400)];
        let snapshot = view.on(&beats, after(10, start));
        assert_eq!(
            snapshot.remarks,
            ["rank 2 is slow: 16:30 left, 1:30 in the middle"]
        );
        let moved = [beat(900, 80, 400), beat(90, 40, 400), beat(900, 80, 400)];
        let snapshot = view.on(&moved, after(45, start));
        assert_eq!(snapshot.remarks, ["rank 1: no step for 0:35"]);
    }

    #[test]
    fn a_rank_that_is_started_again_has_no_negative_rate() {
        let start = now();
        let mut view = View::new(Before::default(), 1);
        view.on(&[beat(100, 10, 0)], start);
        let snapshot = view.on(&[beat(0, 8, 0)], after(10, start));
        assert_eq!((snapshot.rate, snapshot.ranks[0].steps_per_s), (0.0, 0.0));
    }

    #[test]
    fn a_gpu_has_a_column_where_its_driver_tells_and_no_other() {
        let (start, mut view) = (now(), View::new(Before::default(), 2));
        let busy = |busy_s, seen_s| Some(GpuBusy { busy_s, seen_s });
        let beats = |gpu_busy| {
            [
                Heartbeat {
                    gpu_busy,
                    ..beat(1, 0, 4)
                },
                beat(1, 0, 4),
            ]
        };
        let table = view.on(&beats(None), start).table(8);
        assert!(!table[0].contains("gpu"), "{table:#?}");
        view.on(&beats(busy(5.0, 10.0)), start);
        let snapshot = view.on(&beats(busy(8.0, 14.0)), after(4, start));
        assert_eq!(
            [snapshot.ranks[0].gpu_busy, snapshot.ranks[1].gpu_busy],
            [Some(8.0 / 14.0), None]
        );
        let table = snapshot.table(8);
        let at = table[0].find("gpu").unwrap();
        assert_eq!(
            [&table[1][at - 1..at + 3], &table[2][at - 1..at + 3]],
            ["57 %", "   -"],
            "{table:#?}"
        );
    }

    #[test]
    fn a_table_of_many_ranks_shows_those_that_take_longest() {
        let start = now();
        let mut view = View::new(
            Before {
                expected: Some(6400),
                ..Before::default()
            },
            64,
        );
        view.on(&vec![beat(0, 0, 100); 64], start);
        let beats: Vec<_> = (0..64).map(|rank| beat(10, 1 + rank, 100)).collect();
        let table = view.on(&beats, after(10, start)).table(8);
        assert!(
            table.len() <= 15 && table[1].starts_with("   0  push"),
            "{table:#?}"
        );
        assert!(
            table.iter().any(|line| line.contains("and 56 ranks")),
            "{table:#?}"
        );
        let rows: Vec<_> = table[..9]
            .iter()
            .map(|line| line.chars().position(|c| c == 'p'))
            .collect();
        assert!(
            rows[1..].iter().all(|at| *at == rows[1]),
            "columns stand below each other: {table:#?}"
        );
    }
}
