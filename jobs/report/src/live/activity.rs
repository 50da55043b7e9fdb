//! What happens now: the job of each rank, and the episode of each of its environments.
//!
//! ```text
//! rank ──► job_start ──► episode_start ──► episode, or env_lost      one environment
//!              └───────────── job_end ◄────────────┘
//! ```
//! Pure: journal lines in, a table out.

use std::collections::{BTreeMap, VecDeque};

use jobs::job::JobIndex;
use jobs::journal::{EpisodeStart, Line, RankStart};
use jobs::time::Moment;

use crate::merged::record::EpisodeRecord;
use crate::merged::scan::{Found, PieceScan};

/// What happens in a run.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    ranks: BTreeMap<usize, RankActivity>,
    /// The recent rate of episodes.
    pub(crate) rate: RecentRate,
    /// When a rank last started, and in which launch.
    last_start: (Moment, Option<String>),
}

/// What happens in a rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RankActivity {
    /// Its last start.
    pub start: RankStart,
    /// Job that runs; `None` between jobs.
    pub job: Option<JobIndex>,
    /// Environments of the job that ran last, by index.
    pub envs: BTreeMap<usize, EnvActivity>,
    /// The environment of each episode that has begun and whose line is still to come.
    begun: BTreeMap<(JobIndex, u64), usize>,
}

/// What happens in an environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvActivity {
    /// Job of the episode.
    pub job: JobIndex,
    /// The episode that runs, or that ended last.
    pub episode: u64,
    /// When it began.
    pub began: Moment,
    /// Whether it runs.
    pub is_running: bool,
    /// Number of episodes of the job that have ended here in this launch.
    pub ended: u64,
    /// Number of these that were solved.
    pub solved: u64,
}

impl Activity {
    /// Takes the lines of a piece of a journal.
    pub(crate) fn on(&mut self, scan: &PieceScan) {
        for found in &scan.found {
            match found {
                Found::Episode(job, record) => self.ended(*job, record),
                Found::Other(other) => self.other(&other.line),
            }
        }
    }

    /// Returns the ranks of the latest launch, by number.
    pub fn ranks(&self) -> impl Iterator<Item = (usize, &RankActivity)> {
        let (_, launch) = &self.last_start;
        let ranks = self.ranks.iter();
        let of_launch = ranks.filter(move |(_, rank)| rank.start.launch == *launch);
        of_launch.map(|(rank, activity)| (*rank, activity))
    }

    fn started(&mut self, start: &EpisodeStart) {
        let rank = self.ranks.entry(start.rank).or_default();
        let began = Moment::parse(&start.started);
        let env = rank.envs.entry(start.env).or_default();
        (env.job, env.episode) = (start.job_index, start.episode);
        (env.began, env.is_running) = (began, true);
        rank.begun
            .insert((start.job_index, start.episode), start.env);
    }

    fn ended(&mut self, job: JobIndex, record: &EpisodeRecord) {
        self.rate.on(record.ended);
        let Some(rank) = self.ranks.get_mut(&(record.rank as usize)) else {
            return;
        };
        let env = rank.begun.remove(&(job, record.episode));
        if let Some(env) = env.and_then(|env| rank.envs.get_mut(&env)) {
            env.ended += 1;
            env.solved += u64::from(record.is_solved());
            // The line comes after the files of the episode: the environment may run its next one.
            if (env.job, env.episode) == (job, record.episode) {
                env.is_running = false;
            }
        }
    }

    fn other(&mut self, line: &Line) {
        match line {
            Line::Rank(start) => self.rank_started(start),
            Line::EpisodeStart(start) => self.started(start),
            Line::RankEnd(end) => self.ranks.entry(end.rank).or_default().rest(),
            Line::JobStart(start) => {
                let rank = self.ranks.entry(start.rank).or_default();
                rank.job = Some(start.job_index);
                rank.envs.clear();
                rank.begun.clear();
            }
            Line::JobEnd(end) => self.ranks.entry(end.rank).or_default().rest(),
            Line::EnvLost(lost) => {
                let rank = self.ranks.entry(lost.rank).or_default();
                if let Some(env) = rank.envs.get_mut(&lost.env) {
                    env.is_running = false;
                }
            }
            _ => {}
        }
    }

    fn rank_started(&mut self, start: &RankStart) {
        // Journals are read one after the other, each from its first launch on.
        let (last, launch) = &self.last_start;
        let started = Moment::parse(&start.started);
        if started >= *last {
            if *launch != start.launch {
                self.rate = RecentRate::default();
            }
            self.last_start = (started, start.launch.clone());
        }
        let rank = RankActivity {
            start: start.clone(),
            ..RankActivity::default()
        };
        self.ranks.insert(start.rank, rank);
    }
}

impl RankActivity {
    /// Returns the number of environments that run an episode.
    pub fn running(&self) -> usize {
        self.envs.values().filter(|env| env.is_running).count()
    }

    fn rest(&mut self) {
        self.job = None;
        let envs = self.envs.values_mut();
        envs.for_each(|env| env.is_running = false);
    }
}

/// Seconds over which the rate is measured.
const WINDOW_S: f64 = 300.0;

/// Fewest episodes from which a rate is computed.
const LEAST: usize = 3;

/// Most episodes that are remembered; of more, the last ones count.
const MOST: usize = 4096;

/// When the last episodes ended: how many end in a minute, of late.
#[derive(Clone, Debug, Default)]
pub struct RecentRate {
    ends: VecDeque<Moment>,
}

impl RecentRate {
    /// Takes the end of an episode. Ranks write their journals independently, so the order is not
    /// quite that of time.
    pub(super) fn on(&mut self, ended: Moment) {
        let at = self.ends.partition_point(|end| *end <= ended);
        self.ends.insert(at, ended);
        if self.ends.len() > MOST {
            self.ends.pop_front();
        }
    }

    /// Returns the episodes per second until `now`; `None` as long as too few have ended.
    pub fn per_second(&self, now: Moment) -> Option<f64> {
        let from = now.minus(WINDOW_S);
        let recent = self.ends.len() - self.ends.partition_point(|end| *end < from);
        let first = self.ends.get(self.ends.len() - recent)?;
        // The first end opens the time that is measured.
        let seconds = now.since(*first);
        (recent >= LEAST && seconds > 0.0).then(|| (recent - 1) as f64 / seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::lines;

    fn at(second: u64) -> Moment {
        Moment::parse(&lines::at(second))
    }

    #[test]
    fn the_rate_is_that_of_the_last_five_minutes() {
        let mut rate = RecentRate::default();
        let seconds = [0, 10, 400, 420, 410].into_iter();
        seconds.for_each(|second| rate.on(at(second)));
        assert_eq!(rate.per_second(at(440)), Some(2.0 / 40.0));
        assert_eq!(rate.per_second(at(2000)), None, "nothing has ended of late");
    }

    #[test]
    fn two_episodes_are_no_rate() {
        let mut rate = RecentRate::default();
        rate.on(at(1));
        rate.on(at(2));
        assert_eq!(rate.per_second(at(3)), None);
        rate.on(at(3));
        assert_eq!(rate.per_second(at(3)), Some(1.0));
    }
}
