//! Warns before the start about ranks that will have nothing to do, and suggests how to use them.

use jobs::assign::{Assignment, Shard, idle};
use jobs::count::counted;
use jobs::job::{Job, Status};

use crate::say::note::Note;

/// Returns a note about ranks that have nothing to do, or `None` if each has something.
pub(super) fn note(jobs: &[Job], world_size: usize, assignment: Assignment) -> Option<Note> {
    let now = idle(jobs, world_size, assignment);
    if now == 0 {
        return None;
    }
    let count = jobs
        .iter()
        .filter(|job| job.status == Status::Pending)
        .count();
    let jobs_there = counted(count, "job");
    let by_episodes = idle(
        jobs,
        world_size,
        Assignment {
            shard: Shard::Episodes,
            ..assignment
        },
    );
    let advice = match (assignment.shard, by_episodes) {
        (Shard::Jobs, 0) => "; --shard episodes gives episodes to all of them".to_owned(),
        (Shard::Jobs, fewer) if fewer < now => {
            format!("; --shard episodes leaves {fewer} without work")
        }
        (Shard::Jobs, _) => ", and --shard episodes would not change that".to_owned(),
        (Shard::Episodes, _) => ", and too few episodes for more".to_owned(),
    };
    let verb = if now == 1 { "has" } else { "have" };
    let ranks = counted(world_size, "rank");
    Some(Note::info(format!(
        "{now} of {ranks} {verb} nothing to do: the run has {jobs_there}{advice}"
    )))
}

#[cfg(test)]
mod tests {
    use jobs::assign::Assign;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn idle_ranks_are_told_with_what_would_use_them_and_nothing_that_would_not() {
        let said = |lengths: &[Value], world_size, shard| {
            let jobs = jobs::samples::jobs(lengths.iter().cloned());
            let assign = Assign::Modulo;
            let note = note(&jobs, world_size, Assignment { assign, shard });
            note.map(String::from).unwrap_or_default()
        };
        let one = [json!({"num_episodes": 50})];
        let short = [
            json!({"num_episodes": 1}),
            json!({"name": "b", "num_episodes": 2}),
        ];
        let steps = [json!({"num_episodes": null, "num_steps": 9})];
        for (jobs, world_size, shard, wanted) in [
            (
                &one[..],
                4,
                Shard::Jobs,
                "3 of 4 ranks have nothing to do: the run has 1 job; --shard episodes gives \
                 episodes to all of them",
            ),
            (&one, 4, Shard::Episodes, ""),
            (&one, 1, Shard::Jobs, ""),
            (
                &short,
                4,
                Shard::Jobs,
                "2 of 4 ranks have nothing to do: the run has 2 jobs; --shard episodes leaves 1 \
                 without work",
            ),
            (
                &short,
                4,
                Shard::Episodes,
                "1 of 4 ranks has nothing to do: the run has 2 jobs, and too few episodes for more",
            ),
            (
                &steps,
                2,
                Shard::Jobs,
                "1 of 2 ranks has nothing to do: the run has 1 job, and --shard episodes would \
                 not change that",
            ),
        ] {
            assert_eq!(said(jobs, world_size, shard), wanted);
        }
    }
}
