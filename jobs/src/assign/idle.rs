//! Counts the ranks that a plan has no work for.

use crate::assign::{Assign, Assignment, Portion, Shard, part};
use crate::job::{Job, Length, Status};

/// Returns how many of `world_size` ranks have nothing to run, no matter what is already done. With
/// [`Assign::Dynamic`] these are the ranks beyond the number of episodes or jobs to take.
pub fn idle(jobs: &[Job], world_size: usize, assignment: Assignment) -> usize {
    let idle = |rank: &usize| match assignment.assign {
        Assign::Dynamic => pieces(jobs, assignment.shard).nth(*rank).is_none(),
        Assign::Modulo | Assign::Block | Assign::Shuffle => {
            !has_work(jobs, assignment, (*rank, world_size))
        }
    };
    (0..world_size).filter(idle).count()
}

fn has_work(jobs: &[Job], assignment: Assignment, rank: (usize, usize)) -> bool {
    let by_job = Portion::new(assignment.assign, rank, jobs.len() as u64, 0);
    let has_some = |(position, job): (u64, &Job)| {
        let Some(part) = part(job, position, &by_job, assignment, rank) else {
            return false;
        };
        match job.length {
            Length::Episodes(count) => {
                (0..count).any(|episode| job.selects(episode) && part.has(episode))
            }
            Length::Steps(_) | Length::Policy => true,
        }
    };
    (0..)
        .zip(jobs)
        .filter(|(_, job)| job.status == Status::Pending)
        .any(has_some)
}

/// Yields one item for each unit that a rank may take; for a shared job, one for each environment.
fn pieces(jobs: &[Job], shard: Shard) -> impl Iterator<Item = ()> {
    let pending = jobs.iter().filter(|job| job.status == Status::Pending);
    pending.flat_map(move |job| {
        let count = match (job.sharing, shard, job.length) {
            (Some(sharing), ..) => sharing.total_num_envs as u64,
            (None, Shard::Episodes, Length::Episodes(count)) => job.selected(count),
            (None, ..) => 1,
        };
        std::iter::repeat_n((), usize::try_from(count).unwrap_or(usize::MAX))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn idle_of(lengths: &[(&str, u64)], world_size: usize, assign: Assign, shard: Shard) -> usize {
        let entries: Vec<_> = lengths
            .iter()
            .enumerate()
            .map(|(index, (word, length))| {
                json!({"name": format!("j{index}"), "arena_env_args": {"environment": "reach"},
                       "policy_type": "scripted", *word: length})
            })
            .collect();
        idle(
            &crate::file::parse(&json!({"jobs": entries})).unwrap(),
            world_size,
            Assignment { assign, shard },
        )
    }

    #[test]
    fn one_job_leaves_all_but_one_rank_idle_unless_its_episodes_are_dealt() {
        let one = [("num_episodes", 50)];
        for assign in [
            Assign::Modulo,
            Assign::Block,
            Assign::Shuffle,
            Assign::Dynamic,
        ] {
            assert_eq!(idle_of(&one, 4, assign, Shard::Jobs), 3, "{assign:?}");
            assert_eq!(idle_of(&one, 4, assign, Shard::Episodes), 0, "{assign:?}");
        }
    }

    #[test]
    fn fewer_episodes_than_ranks_and_jobs_in_steps_leave_ranks_idle() {
        for assign in [
            Assign::Modulo,
            Assign::Block,
            Assign::Shuffle,
            Assign::Dynamic,
        ] {
            assert_eq!(
                idle_of(&[("num_episodes", 3)], 4, assign, Shard::Episodes),
                1,
                "{assign:?}"
            );
            assert_eq!(
                idle_of(&[("num_steps", 100)], 4, assign, Shard::Episodes),
                3,
                "{assign:?}"
            );
        }
    }

    #[test]
    fn as_many_jobs_as_ranks_leave_none_idle() {
        let four = [("num_episodes", 1); 4];
        assert_eq!(idle_of(&four, 4, Assign::Modulo, Shard::Jobs), 0);
        assert_eq!(idle_of(&four, 6, Assign::Block, Shard::Jobs), 2);
    }
}
