//! Cuts jobs into lease blocks, and estimates how long each takes. Pure: no I/O.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use jobs::assign::lease::{LeasedJob, blocks};
use jobs::assign::{Shard, Work};
use jobs::job::{Job, JobIndex, Length};
use jobs::journal::Line;
use jobs::progress::{self, Progress};
use serde_json::Value;

/// Assumed steps of an episode if the job does not limit them.
const STEPS: u64 = 300;

/// Assumed seconds of a step if no journal has any: a simulator at 50 steps a second.
const STEP_S: f64 = 0.02;

/// The single block of a job that is not divided.
const WHOLE: Range<u64> = 0..u64::MAX;

/// How jobs are cut into blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockCut {
    /// The unit of work (`--shard`).
    pub shard: Shard,
    /// Number of ranks.
    pub world_size: usize,
}

impl BlockCut {
    /// Returns whether a job is leased in blocks; otherwise one lease covers all of it.
    pub fn is_in_blocks(&self, job: &Job) -> bool {
        self.shard == Shard::Episodes && matches!(job.length, Length::Episodes(_))
    }

    /// Returns the lease tasks of `work`, given the lines of the journals.
    pub fn tasks(&self, work: &[Work], lines: &[Line]) -> Vec<LeasedJob> {
        let (progress, times) = (progress::by_job(lines), StepTimes::of(lines));
        let task = |work: &Work| self.task(&work.job, progress.get(&work.job.index), &times);
        work.iter().map(task).collect()
    }

    fn task(&self, job: &Job, so_far: Option<&Progress<'_>>, times: &StepTimes) -> LeasedJob {
        let blocks: Arc<[Range<u64>]> = match job.length {
            Length::Episodes(count) if self.is_in_blocks(job) => {
                blocks(job, count, job.num_envs as u64, self.world_size).into()
            }
            _ => [WHOLE].into(),
        };
        let has = |episode| !job.selects(episode) || so_far.is_some_and(|it| it.has(episode));
        let is_done = |block: &usize| match (job.length, &blocks[*block]) {
            (Length::Episodes(count), of) => (of.start..of.end.min(count)).all(has),
            (Length::Steps(_) | Length::Policy, _) => false,
        };
        let done = (0..blocks.len()).filter(is_done).collect();
        let block_s = times.job_s(job) / blocks.len().max(1) as f64;
        LeasedJob {
            job: job.index,
            blocks,
            done,
            block_s,
        }
    }
}

/// Durations of episodes and steps according to the journals.
#[derive(Debug, Default)]
struct StepTimes {
    /// Seconds and number of episodes of each job.
    jobs: BTreeMap<JobIndex, (f64, u64)>,
    /// Seconds and steps of all jobs.
    all: (f64, u64),
}

impl StepTimes {
    fn of(lines: &[Line]) -> Self {
        let mut times = Self::default();
        for line in lines {
            if let Line::Episode(episode) = line
                && episode.error.is_none()
            {
                let job = times.jobs.entry(episode.job_index).or_default();
                *job = (job.0 + episode.wall_s, job.1 + 1);
                times.all = (times.all.0 + episode.wall_s, times.all.1 + episode.length);
            }
        }
        times
    }

    /// Returns the expected seconds of a whole job in one rank. Episodes are assumed as long as
    /// those in the journals, or else as long as their limit.
    fn job_s(&self, job: &Job) -> f64 {
        let step_s = if self.all.1 > 0 {
            self.all.0 / self.all.1 as f64
        } else {
            STEP_S
        };
        let episode_s = match self.jobs.get(&job.index) {
            Some((seconds, count)) => seconds / *count as f64,
            None => limit(job) as f64 * step_s,
        };
        let side_by_side = job.num_envs.max(1) as f64;
        match job.length {
            Length::Episodes(count) => job.selected(count) as f64 * episode_s / side_by_side,
            Length::Steps(steps) => (steps as f64 * job.num_rebuilds as f64) * step_s,
            Length::Policy => episode_s,
        }
    }
}

/// Returns the maximum number of steps of an episode, as far as the job says.
fn limit(job: &Job) -> u64 {
    let own = job.env_args.get("max_episode_steps");
    let own = own.and_then(Value::as_u64);
    let limits = job.rollout.episode_limit().into_iter().chain(own);
    limits.min().unwrap_or(STEPS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use jobs::episode::Episode;
    use jobs::samples;
    use serde_json::json;

    use crate::eval::tests::leases::{CUT, leased};

    fn work<const N: usize>(entries: [Value; N]) -> Vec<Work> {
        leased(&crate::eval::tests::jobs(entries))
    }

    fn job(name: &str, length: &str, count: u64, num_envs: u64) -> Value {
        let env = json!({"environment": "reach", "num_envs": num_envs, "max_episode_steps": 100});
        json!({"name": name, "num_episodes": null, length: count, "arena_env_args": env})
    }

    fn ended(job: usize, episode: u64, wall_s: f64) -> Line {
        Line::from(Episode {
            wall_s,
            length: 50,
            ..samples::episode(job, "a", episode)
        })
    }

    #[test]
    fn a_block_is_as_long_as_the_job_has_environments() {
        let steps = job("b", "num_steps", 50, 2);
        let work = work([job("a", "num_episodes", 16, 3), steps]);
        let tasks = CUT.tasks(&work, &[]);
        assert_eq!(
            (&tasks[0].blocks[..2], &tasks[1].blocks[..]),
            (&[0..3, 3..6][..], &[WHOLE][..])
        );
        let whole = BlockCut {
            shard: Shard::Jobs,
            ..CUT
        }
        .tasks(&work, &[]);
        assert_eq!(whole[0].blocks[..], [WHOLE]);
    }

    #[test]
    fn blocks_that_the_journals_have_are_done() {
        let lines: Vec<_> = [0, 1, 3].map(|episode| ended(0, episode, 1.0)).into();
        let tasks = CUT.tasks(&work([job("a", "num_episodes", 16, 2)]), &lines);
        assert_eq!(
            (&tasks[0].blocks[1], &tasks[0].done),
            (&(2..4), &BTreeSet::from([0]))
        );
    }

    #[test]
    fn time_is_that_of_the_journals_or_of_the_limit() {
        let jobs = [
            job("a", "num_episodes", 16, 2),
            job("b", "num_episodes", 16, 1),
        ];
        let work = work(jobs);
        let total = |task: &LeasedJob| task.block_s * task.blocks.len() as f64;
        let guessed: Vec<_> = CUT.tasks(&work, &[]).iter().map(total).collect();
        assert!(
            (guessed[0] - 16.0 * 100.0 * STEP_S / 2.0).abs() < 1e-9,
            "{guessed:?}"
        );
        let known: Vec<_> = CUT
            .tasks(&work, &[ended(0, 0, 5.0)])
            .iter()
            .map(total)
            .collect();
        assert!(
            (known[0] - 16.0 * 5.0 / 2.0).abs() < 1e-9 && (known[1] - 16.0 * 10.0).abs() < 1e-9,
            "{known:?}"
        );
    }
}
