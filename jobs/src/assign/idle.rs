//! Counts the ranks that a plan has no work for.

use crate::assign::{Assign, Assignment, Shard, part};
use crate::job::{Job, Length, Status};

/// Returns how many of `world_size` ranks have nothing to run, no matter what is already done. With
/// [`Assign::Dynamic`] these are the ranks beyond the number of episodes or jobs to take.
pub fn idle(jobs: &[Job], world_size: usize, assignment: Assignment) -> usize {
    let Assignment { assign, shard } = assignment;
    let (world_size, count) = (world_size.max(1), jobs.len() as u64);
    let pending = (0..)
        .zip(jobs)
        .filter(|(_, job)| job.status == Status::Pending);
    if assign == Assign::Dynamic {
        let all = pending
            .map(|(_, job)| pieces(job, shard))
            .fold(0, usize::saturating_add);
        return world_size.saturating_sub(all);
    }
    let (mut busy, mut left) = (vec![false; world_size], world_size);
    let mut give = |rank: usize| {
        left -= usize::from(!std::mem::replace(&mut busy[rank], true));
        left
    };
    for (position, job) in pending {
        match (job.sharing, shard, job.length) {
            (.., Length::Episodes(count)) if job.selected(count) == 0 => {}
            (Some(_), ..) => return 0,
            (None, Shard::Episodes, Length::Episodes(count)) => {
                for episode in job.selection(count).iter() {
                    let nth = part::owner(assign, episode, world_size, count);
                    if give((nth + job.index.0) % world_size) == 0 {
                        return 0;
                    }
                }
            }
            (None, ..) => _ = give(part::owner(assign, position, world_size, count)),
        }
    }
    left
}

/// Returns how many units ranks may take of a job; of a shared one, one for each environment.
fn pieces(job: &Job, shard: Shard) -> usize {
    let count = match (job.sharing, shard, job.length) {
        (Some(sharing), ..) => sharing.total_num_envs as u64,
        (None, Shard::Episodes, Length::Episodes(count)) => job.selected(count),
        (None, ..) => 1,
    };
    usize::try_from(count).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::assign::{Work, work};
    use crate::placement::Placement;
    use crate::samples;

    fn jobs(lengths: &[(&str, u64)]) -> Vec<Job> {
        let fields = |(index, (word, length)): (usize, &(&str, u64))| {
            let mut fields = json!({"name": format!("j{index}"), "num_episodes": null});
            fields[*word] = (*length).into();
            fields
        };
        samples::jobs(lengths.iter().enumerate().map(fields))
    }

    fn idle_of(lengths: &[(&str, u64)], world_size: usize, assign: Assign, shard: Shard) -> usize {
        idle(&jobs(lengths), world_size, Assignment { assign, shard })
    }

    #[test]
    fn one_job_leaves_all_but_one_rank_idle_unless_its_episodes_are_dealt() {
        let one = [("num_episodes", 50)];
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(idle_of(&one, 4, assign, Shard::Jobs), 3, "{assign:?}");
            assert_eq!(idle_of(&one, 4, assign, Shard::Episodes), 0, "{assign:?}");
        }
    }

    #[test]
    fn fewer_episodes_than_ranks_and_jobs_in_steps_leave_ranks_idle() {
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
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

    #[test]
    fn a_large_launch_is_counted_in_one_pass_over_its_episodes() {
        let many = [("num_episodes", 1_000_000)];
        for assign in [Assign::Modulo, Assign::Block, Assign::Dynamic] {
            assert_eq!(idle_of(&many, 16_384, assign, Shard::Episodes), 0);
            assert_eq!(idle_of(&many, 16_384, assign, Shard::Jobs), 16_383);
        }
    }

    #[test]
    fn the_ranks_that_are_counted_are_those_without_work() {
        let jobs = jobs(&[("num_episodes", 3), ("num_steps", 9), ("num_episodes", 2)]);
        for (assign, shard) in [
            (Assign::Modulo, Shard::Jobs),
            (Assign::Modulo, Shard::Episodes),
            (Assign::Block, Shard::Jobs),
            (Assign::Block, Shard::Episodes),
        ] {
            let assignment = Assignment { assign, shard };
            for ranks in 1..9 {
                let placement = Placement::of_ranks(vec![0; ranks]);
                let is_idle = |rank: &usize| {
                    let works = work(&jobs, &placement, assignment, *rank);
                    let runs = |work: &Work| match work.job.length {
                        Length::Episodes(count) => work.episodes(0..count).next().is_some(),
                        Length::Steps(_) | Length::Policy => true,
                    };
                    !works.iter().any(runs)
                };
                let wanted = (0..ranks).filter(is_idle).count();
                assert_eq!(
                    idle(&jobs, ranks, assignment),
                    wanted,
                    "{ranks} {assignment:?}"
                );
            }
        }
    }
}
