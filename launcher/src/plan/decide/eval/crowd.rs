//! Limits the number of ranks of `eval`: at most one per unit of work, a warning if there are far
//! more than CPU cores, and an error if memory cannot hold them.
//!
//! ```text
//! asked for ─► at most one per unit of work ─► warning above a few per core ─► error beyond memory
//! ```

use jobs::assign::{Assignment, Shard};
use jobs::bytes::ByteSize;
use jobs::count::counted;
use jobs::job::{Job, Length};

use crate::node::Node;
use crate::say::note::Note;

/// Number of ranks per core above which a warning is printed: ranks with simulators take turns at
/// two or three per core.
const RANKS_A_CORE: usize = 4;

/// Memory that a running rank needs at least, without environments and policies; 54 MiB were
/// measured.
const LEAST: ByteSize = ByteSize(48 << 20);

/// The memory of the machine cannot hold the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{nproc} ranks need at least {needed} of memory, {LEAST} each before any environment or \
     policy, but this node has {memory}; --no-memory-check starts them anyway"
)]
pub struct NoRoom {
    /// Number of ranks on this node.
    pub nproc: usize,
    /// Memory that they need at least.
    pub needed: ByteSize,
    /// Memory of the machine, swap included.
    pub memory: ByteSize,
}

/// Returns the largest number of ranks that can have work, or `None` if the environments of a job
/// are shared by all ranks.
pub fn units(jobs: &[Job], assignment: Assignment) -> Option<usize> {
    if jobs.iter().any(|job| job.sharing.is_some()) {
        return None;
    }
    let episodes = |job: &Job| match (assignment.shard, job.length) {
        (Shard::Episodes, Length::Episodes(count)) => usize::try_from(count).unwrap_or(usize::MAX),
        (Shard::Episodes, Length::Steps(_) | Length::Policy) | (Shard::Jobs, _) => 1,
    };
    Some(
        jobs.iter()
            .map(episodes)
            .fold(0, usize::saturating_add)
            .max(1),
    )
}

/// Returns how many of `nproc` ranks per node can have work on at least `nodes` nodes, and a note
/// if those are fewer. `units` is the amount of work under `shard`; `episodes` is the amount if
/// single episodes were assigned.
pub fn useful(
    nproc: usize,
    nodes: usize,
    (units, shard): (Option<usize>, Shard),
    episodes: Option<usize>,
) -> (usize, Option<Note>) {
    let Some(units) = units.filter(|units| units.div_ceil(nodes) < nproc) else {
        return (nproc, None);
    };
    let each = units.div_ceil(nodes);
    let what = match shard {
        Shard::Jobs => "job",
        Shard::Episodes => "episode",
    };
    let advice = match episodes {
        Some(episodes) if episodes > units => {
            "; --shard episodes would divide the episodes of a job"
        }
        Some(_) | None => "",
    };
    let on_each = if nodes > 1 { " on each node" } else { "" };
    let (asked, units, started) = (
        counted(nproc, "rank"),
        counted(units, what),
        counted(each, "rank"),
    );
    let note = format!(
        "{asked} requested{on_each}, but only {units} to run: {started} will be started{on_each}{advice}"
    );
    (each, Some(Note::warning(note)))
}

/// Returns a warning if there are far more ranks than cores.
pub fn warning(nproc: usize, cpus: usize) -> Option<Note> {
    let most = cpus.saturating_mul(RANKS_A_CORE);
    (cpus > 0 && nproc > most).then(|| {
        Note::warning(format!(
            "{nproc} ranks share {cpus} cores: more than {most} only slow each other down"
        ))
    })
}

/// Checks that the machine has the memory that the ranks need at least.
///
/// # Errors
/// Returns [`NoRoom`] if it does not.
pub fn check(nproc: usize, node: &Node) -> Result<(), NoRoom> {
    let needed = ByteSize(LEAST.0.saturating_mul(nproc as u64));
    match node.memory.map(ByteSize) {
        Some(memory) if needed > memory => Err(NoRoom {
            nproc,
            needed,
            memory,
        }),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Returns the units of jobs with these length fields.
    fn units_of(lengths: &[Value], shard: Shard) -> Option<usize> {
        let job = |(index, length): (usize, &Value)| {
            let mut job =
                json!({"name": format!("job{index}"), "arena_env_args": {"environment": "reach"}});
            job["policy_type"] = "zero_action".into();
            job.as_object_mut()
                .unwrap()
                .extend(length.as_object().unwrap().clone());
            job
        };
        let jobs: Vec<Value> = lengths.iter().enumerate().map(job).collect();
        units(
            &jobs::file::parse(&json!({"jobs": jobs})).unwrap(),
            Assignment {
                shard,
                ..Assignment::default()
            },
        )
    }

    fn said(note: Option<Note>) -> String {
        note.map(|note| note.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_unit_is_a_job_or_an_episode_of_one_that_counts_them() {
        let lengths = [json!({"num_episodes": 10}), json!({"num_steps": 100})];
        assert_eq!(
            [Shard::Jobs, Shard::Episodes].map(|shard| units_of(&lengths, shard)),
            [Some(2), Some(11)]
        );
        assert_eq!(
            units_of(&[json!({"total_num_envs": 8})], Shard::Jobs),
            None,
            "shared by all ranks"
        );
    }

    #[test]
    fn ranks_that_could_have_no_work_are_not_started() {
        let (nproc, note) = useful(5000, 1, (Some(1), Shard::Jobs), Some(9));
        let told = "5000 ranks requested, but only 1 job to run: 1 rank will be started; --shard \
            episodes would divide the episodes of a job";
        assert_eq!((nproc, said(note).as_str()), (1, told));
        let (nproc, note) = useful(8, 1, (Some(6), Shard::Episodes), Some(6));
        assert_eq!(
            (nproc, said(note)),
            (
                6,
                "8 ranks requested, but only 6 episodes to run: 6 ranks will be started".into()
            )
        );
        assert_eq!(
            [
                useful(4, 1, (Some(4), Shard::Jobs), Some(4)).0,
                useful(4, 1, (None, Shard::Jobs), None).0
            ],
            [4, 4]
        );
    }

    #[test]
    fn every_node_starts_as_many_as_the_others() {
        assert_eq!(
            [
                useful(8, 2, (Some(5), Shard::Jobs), Some(5)).0,
                useful(8, 4, (Some(64), Shard::Jobs), Some(64)).0
            ],
            [3, 8]
        );
        assert!(
            said(useful(8, 2, (Some(5), Shard::Jobs), Some(5)).1)
                .contains("3 ranks will be started on each node")
        );
    }

    #[test]
    fn far_more_ranks_than_cores_are_told_so() {
        assert_eq!(
            [
                warning(8, 2).is_some(),
                warning(9, 2).is_some(),
                warning(9, 0).is_some()
            ],
            [false, true, false]
        );
    }

    #[test]
    fn what_memory_cannot_hold_is_refused() {
        let node = Node {
            memory: Some(1 << 30),
            ..Node::default()
        };
        assert_eq!(
            [check(21, &node).is_ok(), check(22, &node).is_ok()],
            [true, false]
        );
        assert!(
            check(5000, &Node::default()).is_ok(),
            "where nothing is known, nothing is certain"
        );
        let text = check(5000, &node).unwrap_err().to_string();
        assert!(
            text.starts_with("5000 ranks need at least 234.4 GiB of memory, 48 MiB each"),
            "{text}"
        );
    }
}
