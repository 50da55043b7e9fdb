//! Leases: who runs which block of episodes, when nobody deals them out beforehand.
//!
//! ```text
//!                 add(next/<job>)            swap(lease/<job>/<block>: "" ─► me)
//! loaded job ────► a block that nobody had ──► it is ours ─► run ─► swap(me ─► done), add(closed/<job>)
//!    │ none left            ▲                     │ somebody was faster: the next one
//!    ▼                      │
//! swap(begun/<job>) ────────┤   jobs that nobody has begun, longest expected first
//!    │ all begun            │
//!    ▼                      │
//! next, helpers of each ────┘   the one with the most work left for each rank on it
//!    │ nothing that nobody had
//!    ▼
//! leases that are not done: free ones, and those of ranks that died or hang ─► swap(theirs ─► me)
//!    │ all are held by living ranks: look again later
//!    ▼ all are done: finished
//! ```
//! There is no server beside the store, and any rank may die at any point: what decides is one `compare_set` of the lease
//! itself. Everything else (`next`, `begun`, `helpers`, `closed`) saves looking, and may be wrong. All ranks derive the
//! same blocks from the plan. A rank has another `life` each time it is started, so that what it held before can be told
//! from what it holds.
//!
//! A rank that hangs may come back. Before it writes an episode down it changes the `mark` of its lease, which fails if
//! somebody took that over; and nobody takes over a lease whose mark has changed since he looked last, some time ago. So an
//! episode is written twice only if its rank hangs between mark and journal, for longer than the others wait.

use std::fmt;
use std::str::FromStr;

use crate::job::JobIndex;

mod blocks;
mod claimer;
#[cfg(test)]
mod simulation;

pub use blocks::blocks;
pub use claimer::{Answer, Claim, Claimer, Task, Want};

/// A process that may hold a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// Its rank.
    pub rank: usize,
    /// How often that rank has been started, from 1: `add(life/<rank>, 1)`.
    pub life: i64,
    /// Episodes of the block that it was about to write down.
    pub mark: u64,
}

/// What a lease says; a store has it as text, nothing for a free one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Nobody has it, or whoever did gave it back.
    Free,
    /// Somebody runs it.
    By(Holder),
    /// All its episodes are in a journal.
    Done,
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => Ok(()),
            Self::By(Holder { rank, life, mark }) => write!(f, "{rank}:{life}:{mark}"),
            Self::Done => f.write_str("done"),
        }
    }
}

impl FromStr for Hold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let holder = || {
            let (rank, rest) = text.split_once(':')?;
            let (life, mark) = rest.split_once(':')?;
            let (rank, life, mark) = (rank.parse().ok()?, life.parse().ok()?, mark.parse().ok()?);
            Some(Self::By(Holder { rank, life, mark }))
        };
        match text {
            // What is not there is read as what it was compared with.
            "" | NOTHING => Ok(Self::Free),
            "done" => Ok(Self::Done),
            _ => holder().ok_or_else(|| format!("`{text}` is no holder of a lease")),
        }
    }
}

/// No lease says this: to compare with it is to read without waiting.
pub const NOTHING: &str = "?";

/// A key of the store, below a prefix of the launch and the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// How many blocks of a job have been handed out; more than there are once it has none.
    Next(JobIndex),
    /// Who was first at a job.
    Begun(JobIndex),
    /// Ranks that have its environments; those that died are counted on.
    Helpers(JobIndex),
    /// Blocks of a job that are done; a rank that dies in between leaves one out.
    Closed(JobIndex),
    /// Who has a block.
    Lease(JobIndex, usize),
    /// How often a rank was started.
    Life(usize),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Next(job) => write!(f, "next/{}", job.0),
            Self::Begun(job) => write!(f, "begun/{}", job.0),
            Self::Helpers(job) => write!(f, "helpers/{}", job.0),
            Self::Closed(job) => write!(f, "closed/{}", job.0),
            Self::Lease(job, block) => write!(f, "lease/{}/{block}", job.0),
            Self::Life(rank) => write!(f, "life/{rank}"),
        }
    }
}

/// One operation of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Adds to a number, which is 0 where there was none.
    Add(Key, i64),
    /// Puts the second in the place of the first, if that is what is there ([`Hold::Free`]: or nothing is).
    Swap(Key, Hold, Hold),
    /// What is there.
    Read(Key),
}

/// What the store answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The sum.
    Sum(i64),
    /// What is there now.
    Is(Hold),
}

/// More than any job has blocks: added to `next` and `closed` of a job that has failed for good.
const SHUT: i64 = 1 << 40;

/// What is to succeed before an episode of a block is written down: the holder as it is now, and as it is then.
pub fn mark(holder: Holder, job: JobIndex, block: usize) -> (Op, Holder) {
    let next = Holder { mark: holder.mark + 1, ..holder };
    (Op::Swap(Key::Lease(job, block), Hold::By(holder), Hold::By(next)), next)
}

/// What says that a block is done; the second only if the first gave [`Hold::Done`].
pub fn done(holder: Holder, job: JobIndex, block: usize) -> [Op; 2] {
    [Op::Swap(Key::Lease(job, block), Hold::By(holder), Hold::Done), Op::Add(Key::Closed(job), 1)]
}

/// What says that nobody is to run a job any more.
pub fn shut(job: JobIndex) -> [Op; 2] {
    [Op::Add(Key::Next(job), SHUT), Op::Add(Key::Closed(job), SHUT)]
}

#[cfg(test)]
mod tests;
