//! Which rank runs which job, and of a shared job which episodes.

use std::ops::Range;

use crate::job::{Job, Status};
use crate::placement::{Placement, Seat, Share};

/// What one rank runs of one job.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The job; `num_envs` is what this rank has of them.
    pub job: Job,
    /// The rank's environments of a shared job; `None`: the whole job is the rank's.
    pub share: Option<Share>,
    /// Where each of the rank's environments sits, one a copy, in order.
    pub seats: Vec<Seat>,
}

impl Work {
    /// Whether `episode` is this rank's.
    pub fn runs(&self, episode: u64) -> bool {
        self.share.is_none_or(|share| share.slot(episode).is_some())
    }

    /// The copy that has to run `episode` of a shared job; `None`: whichever is free.
    pub fn slot(&self, episode: u64) -> Option<usize> {
        self.share.and_then(|share| share.slot(episode))
    }

    /// Those of `episodes` that are this rank's.
    pub fn episodes(&self, episodes: Range<u64>) -> impl Iterator<Item = u64> {
        episodes.filter(|episode| self.runs(*episode))
    }
}

/// What `rank` runs, in file order: the jobs that are its own by [`modulo`], and its share of the shared ones. `total_num_envs`
/// of these is known to be divisible, see [`crate::setup::Setup::check`].
pub fn work(jobs: &[Job], placement: &Placement, rank: usize) -> Vec<Work> {
    let world_size = placement.world_size().max(1);
    let own = |job: &&Job| job.sharing.is_some() || job.index.0 % world_size == rank;
    let pending = jobs.iter().filter(|job| job.status == Status::Pending);
    pending.filter(own).map(|job| part(job, placement, rank)).collect()
}

fn part(job: &Job, placement: &Placement, rank: usize) -> Work {
    let (share, seats) = match job.sharing {
        Some(sharing) => {
            let total = sharing.total_num_envs;
            (Some(Share::of(rank, placement.world_size(), total)), placement.seats(rank, total))
        }
        None => (None, placement.home(rank, job.num_envs)),
    };
    Work { job: Job { num_envs: seats.len(), ..job.clone() }, share, seats }
}

/// Arena's rule: the job at `index` of the full list runs on the rank `index % world_size`.
///
/// Jobs that are not pending keep their place in the count, so an assignment does not move when one is done.
pub fn modulo(jobs: &[Job], rank: usize, world_size: usize) -> impl Iterator<Item = &Job> {
    jobs.iter().filter(move |job| job.index.0 % world_size == rank && job.status == Status::Pending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::parse;
    use proptest::prelude::*;
    use serde_json::json;

    fn jobs(count: usize, done: usize) -> Vec<Job> {
        let entries: Vec<_> = (0..count)
            .map(|i| {
                json!({"name": format!("j{i}"), "arena_env_args": {"environment": "reach"}, "policy_type": "zero_action",
                       "num_episodes": 1, "status": if i < done { "completed" } else { "pending" }})
            })
            .collect();
        parse(&json!({"jobs": entries})).unwrap()
    }

    proptest! {
        #[test]
        fn every_pending_job_runs_on_exactly_one_rank(count in 1usize..40, world in 1usize..9, done in 0usize..5) {
            let jobs = jobs(count, done.min(count));
            let mut all: Vec<_> = (0..world).flat_map(|rank| modulo(&jobs, rank, world)).map(|job| job.index).collect();
            all.sort_unstable();
            let pending: Vec<_> = jobs.iter().filter(|j| j.status == Status::Pending).map(|j| j.index).collect();
            prop_assert_eq!(all, pending);
        }
    }

    /// Jobs of which some are shared; `total` environments each.
    fn mixed(shared: &[bool], total: usize, episodes: u64) -> Vec<Job> {
        let entry = |(i, shared): (usize, &bool)| {
            let mut entry = json!({"name": format!("j{i}"), "arena_env_args": {"environment": "reach"},
                                   "policy_type": "zero_action", "num_episodes": episodes});
            if *shared {
                entry["total_num_envs"] = total.into();
            }
            entry
        };
        let entries: Vec<_> = shared.iter().enumerate().map(entry).collect();
        parse(&json!({"jobs": entries})).unwrap()
    }

    proptest! {
        #[test]
        fn every_episode_of_every_job_runs_exactly_once(
            shared in proptest::collection::vec(any::<bool>(), 1..6), world in 1usize..9, workers in 1usize..4,
            times in 1usize..3, episodes in 1u64..40
        ) {
            let processes = |count: usize| Placement::of_ranks(0..count).env;
            let placement = Placement { env: processes(workers), rollout: processes(world) };
            let jobs = mixed(&shared, world * workers * times, episodes);
            let mut seen: Vec<_> = (0..world)
                .flat_map(|rank| work(&jobs, &placement, rank))
                .flat_map(|work| work.episodes(0..episodes).map(|e| (work.job.index, e)).collect::<Vec<_>>())
                .collect();
            seen.sort_unstable();
            let all: Vec<_> = jobs.iter().flat_map(|job| (0..episodes).map(|e| (job.index, e))).collect();
            prop_assert_eq!(seen, all);
        }
    }

    #[test]
    fn a_rank_has_as_many_copies_as_seats() {
        let jobs = mixed(&[true, false, false], 8, 1);
        let own = work(&jobs, &Placement::of_ranks(0..2), 1);
        let copies: Vec<_> =
            own.iter().map(|work| (work.job.name.as_str(), work.job.num_envs, work.seats.len())).collect();
        assert_eq!(copies, [("j0", 4, 4), ("j1", 1, 1)]);
        assert_eq!(jobs[0].num_envs, 8, "the job itself has them all");
    }

    #[test]
    fn a_completed_job_does_not_move_the_others() {
        let names = |jobs: &[Job]| modulo(jobs, 1, 2).map(|job| job.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&jobs(4, 0)), ["j1", "j3"]);
        assert_eq!(names(&jobs(4, 1)), ["j1", "j3"]);
        assert_eq!(names(&jobs(4, 2)), ["j3"]);
    }
}
