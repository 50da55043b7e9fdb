//! Stages: ranges of episodes that the ranks run one after the other, each over all jobs.
//!
//! ```text
//!            0    5    10   15     22         33
//! job 0      ├────┼────┼────┼──────┼──────────┤ …     all jobs up to episode 5, then all up to 10
//! job 1      ├────┼────┼────┼──────┼──────────┤ …
//! ```
//! A test that looks at episode `r` of every job would wait for the last job if ranks ran job after
//! job. Each stage begins a job again, which costs a build of its environments. Stages therefore
//! grow by half of what was done before: their number is logarithmic, and a run that ends at any
//! point has run at most half more than the test needed.

use std::ops::Range;

use crate::assign::{Assign, Assignment, Shard, Work};
use crate::job::{Job, Length, Status};
use crate::numbers::Numbers;

/// Number of episodes of the first stage, at least: few enough to stop a hopeless policy at once.
const FIRST: u64 = 5;

/// Returns the stages of a run on `world_size` ranks, all of which must agree on them. A run with a
/// single job has one stage, because its episodes are in order anyway.
pub fn stages(jobs: &[Job], assignment: Assignment, world_size: usize) -> Vec<Range<u64>> {
    let pending: Vec<_> = jobs
        .iter()
        .filter(|job| job.status == Status::Pending)
        .collect();
    let count = |job: &&Job| match job.length {
        Length::Episodes(count) => count,
        Length::Steps(_) | Length::Policy => 1,
    };
    let longest = pending.iter().map(count).max().unwrap_or(0);
    if pending.len() < 2 {
        return cut(longest, longest.max(1));
    }
    let width = |job: &&Job| side_by_side(job, assignment, world_size);
    let widest = pending.iter().map(width).max().unwrap_or(1);
    cut(longest, widest.max(FIRST))
}

/// Returns how many episodes of a job run at the same time.
fn side_by_side(job: &Job, assignment: Assignment, world_size: usize) -> u64 {
    let is_split = assignment.shard == Shard::Episodes || assignment.assign == Assign::Dynamic;
    match (job.total_num_envs, is_split) {
        (Some(total), _) => total as u64,
        (None, true) => (job.num_envs as u64).saturating_mul(world_size as u64),
        (None, false) => job.num_envs as u64,
    }
}

/// Cuts `0..count` into stages of at least `least` episodes.
fn cut(count: u64, least: u64) -> Vec<Range<u64>> {
    let mut stages = Vec::new();
    let mut begin = 0;
    while begin < count {
        let end = (begin + least.max(begin / 2)).min(count);
        stages.push(begin..end);
        begin = end;
    }
    stages
}

impl Work {
    /// Returns the episodes of a stage; `None` if this rank has none of them. The job must not
    /// select episodes itself.
    pub fn in_stage(&self, stage: &Range<u64>) -> Option<Self> {
        let Length::Episodes(count) = self.job.length else {
            return (stage.start == 0).then(|| self.clone());
        };
        let episodes = stage.start..stage.end.min(count);
        self.episodes(episodes.clone()).next()?;
        if episodes == (0..count) {
            return Some(self.clone());
        }
        let job = Job {
            only: Some(Numbers::between(episodes)),
            ..self.job.clone()
        };
        Some(Self {
            job,
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::assign::work;
    use crate::placement::Placement;
    use crate::samples;

    fn jobs(lengths: &[u64]) -> Vec<Job> {
        let entry = |(index, length): (usize, &u64)| {
            json!({"name": format!("j{index}"), "num_episodes": length,
                   "arena_env_args": {"environment": "reach", "num_envs": 2}})
        };
        samples::jobs(lengths.iter().enumerate().map(entry))
    }

    #[test]
    fn stages_grow_by_half_of_what_was_done() {
        let by_job = Assignment::default();
        let found = stages(&jobs(&[40, 12]), by_job, 1);
        assert_eq!(found, [0..5, 5..10, 10..15, 15..22, 22..33, 33..40]);
        assert_eq!(stages(&jobs(&[40]), by_job, 1).len(), 1, "one job");
    }

    #[test]
    fn a_stage_keeps_all_environments_busy() {
        let by_episode = Assignment {
            assign: Assign::Dynamic,
            shard: Shard::Episodes,
        };
        assert_eq!(stages(&jobs(&[40, 40]), by_episode, 8)[0], 0..16);
    }

    #[test]
    fn a_job_that_is_over_has_no_part_of_a_later_stage() {
        let works = work(
            &jobs(&[9, 4]),
            &Placement::of_ranks(vec![0]),
            Assignment::default(),
            0,
        );
        let only = |stage| {
            let of = |work: &Work| Some(work.in_stage(&stage)?.job.only?.to_string());
            works.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(only(0..5), [Some("0-4".to_owned()), None]);
        assert_eq!(only(5..9), [Some("5-8".to_owned()), None]);
        assert_eq!(works[1].in_stage(&(0..5)), Some(works[1].clone()));
        assert_eq!(works[1].in_stage(&(5..9)), None);
    }

    proptest! {
        #[test]
        fn all_stages_of_all_ranks_have_every_episode_once(
            lengths in prop::collection::vec(1_u64..60, 1..4), ranks in 1_usize..4, by_episode: bool,
        ) {
            let jobs = jobs(&lengths);
            let shard = if by_episode { Shard::Episodes } else { Shard::Jobs };
            let assignment = Assignment { shard, ..Assignment::default() };
            let placement = Placement::of_ranks(vec![0; ranks]);
            let mut found: Vec<Vec<u64>> = vec![Vec::new(); jobs.len()];
            for stage in stages(&jobs, assignment, ranks) {
                for rank in 0..ranks {
                    let works = work(&jobs, &placement, assignment, rank);
                    for work in works.iter().filter_map(|work| work.in_stage(&stage)) {
                        let index = work.job.index.0;
                        found[index].extend(work.episodes(0..lengths[index]));
                    }
                }
            }
            for (found, length) in found.iter_mut().zip(&lengths) {
                found.sort_unstable();
                prop_assert_eq!(&*found, &(0..*length).collect::<Vec<_>>());
            }
        }
    }
}
