//! Leases: how ranks agree on who runs which block of episodes with `--assign dynamic`.
//!
//! ```text
//!                 add(next/<job>)            swap(lease/<job>/<block>: "" ─► me)
//! loaded job ────► a block never leased ────► ours ─► run ─► swap(me ─► done), add(closed/<job>)
//!    │ none left            ▲                     │ another rank was faster: the next block
//!    ▼                      │
//! swap(begun/<job>) ────────┤   jobs not begun yet, longest expected first
//!    │ all begun            │
//!    ▼                      │
//! next, helpers of all ─────┘   the job with the most work left per rank
//!    │ every block was leased before
//!    ▼
//! swap(scanner: "" ─► me)       one rank reads the leases for all who wait; they ask again later
//!    │ ours
//!    ▼
//! leases that are not done: free ones, and those of ranks that died or hang ─► swap(theirs ─► me),
//!    │                                        swap(scanner: me ─► "")
//!    │ all are held by living ranks: ask again later
//!    ▼ all are done: swap(scanner: me ─► done), finished
//! ```
//! Who asks for its first job makes a few requests, however many ranks and jobs there are: the
//! first ranks begin a job each, and the others are spread over the jobs by their work.
//!
//! There is no server beside the store, and any rank may die at any point. The single `compare_set`
//! of the lease itself decides who has a block. Everything else (`next`, `begun`, `helpers`,
//! `closed`, `scanner`) only saves reads, and may be wrong. All ranks derive the same blocks from the plan. A
//! rank has another `life` each time it is started, so leases from before a rank restart can be
//! told from its current ones.
//!
//! A rank that hangs may come back. Before it writes an episode to its journal, it changes the
//! `mark` of its lease, which fails if another rank took the lease over. No rank takes over a lease
//! whose mark has changed since that rank last read it, some time ago. So an episode is written
//! twice only if its rank hangs between mark and journal for longer than the others wait.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::job::{Job, JobIndex};
use crate::refusal::Refusal;

mod claimer;

pub use claimer::{Claim, Claimer, LeasedJob, NextStep, Want};

/// A process that may hold a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseHolder {
    /// Rank of the process.
    pub rank: usize,
    /// How often that rank has been started, from 1: the result of `add(life/<rank>, 1)`.
    pub life: i64,
    /// How many times the holder was about to write an episode of the block.
    pub mark: u64,
}

impl LeaseHolder {
    /// Returns the holder with its next mark, by which it is seen to be at work.
    fn marked(self) -> Self {
        let mark = self.mark.saturating_add(1);
        Self { mark, ..self }
    }
}

/// The state of a lease. The store has it as text; the empty text is a free lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// No rank has had the block, or its holder gave it back.
    Free,
    /// A process runs the block.
    By(LeaseHolder),
    /// All episodes of the block are in a journal. The holder is the process that marked it as
    /// done, so that exactly one process counts the block.
    Done(LeaseHolder),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => Ok(()),
            Self::By(LeaseHolder { rank, life, mark }) => write!(f, "{rank}:{life}:{mark}"),
            Self::Done(holder) => write!(f, "done:{}", Self::By(*holder)),
        }
    }
}

impl FromStr for Hold {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let holder = |text: &str| {
            let (rank, rest) = text.split_once(':')?;
            let (life, mark) = rest.split_once(':')?;
            let (rank, life, mark) = (rank.parse().ok()?, life.parse().ok()?, mark.parse().ok()?);
            Some(LeaseHolder { rank, life, mark })
        };
        if text.is_empty() {
            return Ok(Self::Free);
        }
        let hold = match text.strip_prefix("done:") {
            Some(by) => holder(by).map(Self::Done),
            None => holder(text).map(Self::By),
        };
        hold.ok_or_else(|| Refusal::new(format_args!("`{text}` is not a holder of a lease")))
    }
}

/// A key of the store, below a prefix of the launch and the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LeaseKey {
    /// Counts the blocks of a job that were handed out. It exceeds the number of blocks once none
    /// is left.
    Next(JobIndex),
    /// The process that began a job first.
    Begun(JobIndex),
    /// Counts the ranks that loaded the environments of a job, including those that died since.
    Helpers(JobIndex),
    /// Counts the blocks of a job that are done. A rank that dies at the wrong moment leaves its
    /// block uncounted.
    Closed(JobIndex),
    /// The lease of a block: job and index of the block.
    Lease(JobIndex, usize),
    /// Counts how often a rank was started.
    Life(usize),
    /// The rank that reads leases for all who wait; done when all blocks are. A rank that dies keeps
    /// the role until the others notice that its mark does not change.
    Scanner,
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Next(job) => write!(f, "next/{}", job.0),
            Self::Begun(job) => write!(f, "begun/{}", job.0),
            Self::Helpers(job) => write!(f, "helpers/{}", job.0),
            Self::Closed(job) => write!(f, "closed/{}", job.0),
            Self::Lease(job, block) => write!(f, "lease/{}/{block}", job.0),
            Self::Life(rank) => write!(f, "life/{rank}"),
            Self::Scanner => write!(f, "scanner"),
        }
    }
}

/// One operation of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseOp {
    /// Adds to a counter; a missing counter is 0.
    Add(LeaseKey, i64),
    /// Replaces the first value by the second, if the lease has the first one. [`Hold::Free`] also
    /// matches a missing key.
    Swap(LeaseKey, Hold, Hold),
    /// Reads the current values of counters.
    Sums(Vec<LeaseKey>),
    /// Reads the current values of leases.
    Holds(Vec<LeaseKey>),
    /// Asks whether all of these keys have a value.
    AreThere(Vec<LeaseKey>),
}

/// The store's reply to an [`LeaseOp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseReply {
    /// The value of the counter after the addition.
    Sum(i64),
    /// The value of the lease after the operation.
    Is(Hold),
    /// The values of the counters; a missing counter is 0.
    Sums(Vec<i64>),
    /// The values of the leases; a missing lease is free.
    Holds(Vec<Hold>),
    /// Whether all keys have a value.
    AreThere(bool),
}

/// More blocks than any job has; added to `next` and `closed` of a job that has failed for good.
const SHUT: i64 = 1 << 40;

/// Returns the operation that must succeed before an episode of a block is written to the journal,
/// and the holder after it.
pub fn mark(holder: LeaseHolder, job: JobIndex, block: usize) -> (LeaseOp, LeaseHolder) {
    let (lease, next) = (LeaseKey::Lease(job, block), holder.marked());
    let swap = LeaseOp::Swap(lease, Hold::By(holder), Hold::By(next));
    (swap, next)
}

/// Returns the operations that mark a block as done. The second one, which counts it, only runs if
/// the first one returned [`Hold::Done`] with this holder: if another rank took the lease over and
/// was faster, that rank counts the block.
pub fn done(holder: LeaseHolder, job: JobIndex, block: usize) -> [LeaseOp; 2] {
    let lease = LeaseKey::Lease(job, block);
    let swap = LeaseOp::Swap(lease, Hold::By(holder), Hold::Done(holder));
    [swap, LeaseOp::Add(LeaseKey::Closed(job), 1)]
}

/// Returns the operations that stop every rank from running a job.
pub fn shut(job: JobIndex) -> [LeaseOp; 2] {
    [
        LeaseOp::Add(LeaseKey::Next(job), SHUT),
        LeaseOp::Add(LeaseKey::Closed(job), SHUT),
    ]
}

/// Cuts the chosen episodes of a job with `count` episodes into blocks of at most `most`.
///
/// A block lies within one build of the environments. Blocks shrink towards the end of the job, so
/// that ranks end at about the same time: a block has at least one episode and at most one rank's
/// share of half of what is left (guided self-scheduling, Polychronopoulos and Kuck 1987, halved).
pub fn blocks(job: &Job, count: u64, most: u64, world_size: usize) -> Vec<Range<u64>> {
    let mut left = job.selected(count);
    let mut blocks = Vec::new();
    for build in job.rebuilds(count) {
        let mut episodes = build.filter(|episode| job.selects(*episode));
        while let Some(first) = episodes.next() {
            let size = left
                .div_ceil(2 * world_size.max(1) as u64)
                .clamp(1, most.max(1));
            let rest = episodes.by_ref().take(size as usize - 1);
            let (last, taken) = rest.fold((first, 1), |(_, taken), episode| (episode, taken + 1));
            blocks.push(first..last + 1);
            left -= taken;
        }
    }
    blocks
}

#[cfg(test)]
mod tests;
