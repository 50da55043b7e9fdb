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
use jobs::refusal::Refusal;

use crate::node::Node;
use crate::say::note::Note;

/// Number of ranks per core above which a warning is printed: ranks with simulators take turns at
/// two or three per core.
const RANKS_A_CORE: usize = 4;

/// Memory that a running rank needs at least, without environments and policies; 54 MiB were
/// measured.
const LEAST: ByteSize = ByteSize(48 << 20);

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
/// Refuses the ranks if it does not.
pub fn check(nproc: usize, node: &Node) -> Result<(), Refusal> {
    let needed = ByteSize(LEAST.0.saturating_mul(nproc as u64));
    match node.memory.map(ByteSize) {
        Some(memory) if needed > memory => Err(Refusal::new(format_args!(
            "{nproc} ranks need at least {needed} of memory, {LEAST} each before any environment \
             or policy, but this node has {memory}; --no-memory-check starts them anyway"
        ))),
        Some(_) | None => Ok(()),
    }
}
