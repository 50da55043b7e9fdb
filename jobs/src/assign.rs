//! Which rank runs which job.

use crate::job::{Job, Status};

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

    #[test]
    fn a_completed_job_does_not_move_the_others() {
        let names = |jobs: &[Job]| modulo(jobs, 1, 2).map(|job| job.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&jobs(4, 0)), ["j1", "j3"]);
        assert_eq!(names(&jobs(4, 1)), ["j1", "j3"]);
        assert_eq!(names(&jobs(4, 2)), ["j3"]);
    }
}
