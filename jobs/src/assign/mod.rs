//! Assigns work to ranks: whole jobs, or some episodes of each job.
//!
//! ```text
//! --shard jobs      position of the job in the file  ─┐
//! --shard episodes  number of the episode in its job ─┴─► Part ─► a rank's Work, unfinished only
//! --assign dynamic  any rank may run any job; leases decide
//! ```
//! A static assignment depends on jobs, world size and rank alone, so a restarted rank finds the
//! work that it left. A job in steps, or one that is as long as its policy, is not split. A shared
//! job (`total_num_envs`) is split by environments, whatever the rule.

use std::ops::Range;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::job::{Job, Length, Status};
use crate::placement::{Placement, Seat, Share};

pub mod lease;
mod only;
mod stages;

pub use only::Only;
pub use stages::stages;

/// Rule that assigns jobs or episodes to ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Assign {
    /// Arena's rule: the job or episode at `index` goes to rank `index % world_size`.
    #[default]
    Modulo,
    /// Contiguous blocks; the first ones are longer by one if the number is not divisible.
    Block,
    /// Leases of a few episodes each, taken from the store: an idle rank helps with the remaining
    /// work.
    Dynamic,
}

/// Unit that is assigned to ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shard {
    /// Whole jobs.
    #[default]
    Jobs,
    /// The episodes of each job.
    Episodes,
}

/// The rule, and the unit that it is applied to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// How the units are dealt to ranks.
    pub assign: Assign,
    /// What is dealt: jobs or episodes.
    pub shard: Shard,
}

/// The part of one job that one rank runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// The job; its `num_envs` is the number of environments of this rank.
    pub job: Job,
    /// The rank's environments of a shared job; `None` if the job is not shared and the rank has
    /// all of them.
    pub share: Option<Share>,
    /// The rank's episodes of a job that is dealt by episodes.
    pub part: Portion,
    /// Placement of the rank's environments, one seat for each copy, in order.
    pub seats: Vec<Seat>,
}

impl Work {
    /// Returns whether this rank runs `episode`.
    pub fn runs(&self, episode: u64) -> bool {
        self.job.selects(episode)
            && self.part.has(episode)
            && self.share.is_none_or(|share| share.slot(episode).is_some())
    }

    /// Returns the copy that must run `episode` of a shared job; `None` means any free copy.
    pub fn slot(&self, episode: u64) -> Option<usize> {
        self.share.and_then(|share| share.slot(episode))
    }

    /// Returns those of `episodes` that this rank runs.
    pub fn episodes(&self, episodes: Range<u64>) -> impl Iterator<Item = u64> {
        episodes.filter(|episode| self.runs(*episode))
    }

    /// Returns whether `done`, which is ascending, has all episodes of this rank. This is never so
    /// for a job whose episodes are not counted beforehand.
    pub fn is_done(&self, done: &[u64]) -> bool {
        let Length::Episodes(count) = self.job.length else {
            return false;
        };
        self.episodes(0..count)
            .all(|episode| done.binary_search(&episode).is_ok())
    }
}

/// Returns what `rank` runs, in file order; with [`Assign::Dynamic`], what it may run. Jobs that
/// are not pending still count for the positions, so the assignment does not change when one is
/// done. The `total_num_envs` of shared jobs must be divisible, see [`crate::setup::Setup::check`].
pub fn work(jobs: &[Job], placement: &Placement, assignment: Assignment, rank: usize) -> Vec<Work> {
    let world_size = placement.world_size().max(1);
    let by_job = Portion::new(assignment.assign, (rank, world_size), jobs.len() as u64);
    let part = |position, job| part(job, position, &by_job, assignment, (rank, world_size));
    let pending = (0..)
        .zip(jobs)
        .filter(|(_, job)| job.status == Status::Pending);
    pending
        .filter_map(|(position, job)| Some(of_rank(job, part(position, job)?, placement, rank)))
        .collect()
}

/// Returns the part of the job at `position` that one of `world_size` ranks runs; `by_job` are the
/// rank's jobs.
fn part(
    job: &Job,
    position: u64,
    by_job: &Portion,
    Assignment { assign, shard }: Assignment,
    rank: (usize, usize),
) -> Option<Portion> {
    match (shard, job.length) {
        _ if job.sharing.is_some() => Some(Portion::All),
        (Shard::Episodes, Length::Episodes(count)) => Some(by_episode(job, assign, rank, count)),
        _ => by_job.has(position).then_some(Portion::All),
    }
}

/// Splits a job by episodes. Its first part, which may be larger than the others, goes to another
/// rank from job to job.
fn by_episode(
    job: &Job,
    assign: Assign,
    (rank, world_size): (usize, usize),
    count: u64,
) -> Portion {
    let nth = (rank + world_size - job.index.0 % world_size) % world_size;
    Portion::new(assign, (nth, world_size), count)
}

fn of_rank(job: &Job, part: Portion, placement: &Placement, rank: usize) -> Work {
    let (share, seats) = match job.sharing {
        Some(sharing) => {
            let total = sharing.total_num_envs;
            (
                Some(Share::of(rank, placement.world_size(), total)),
                placement.seats(rank, total),
            )
        }
        None => (None, placement.home(rank, job.num_envs)),
    };
    Work {
        job: Job {
            num_envs: seats.len(),
            ..job.clone()
        },
        share,
        part,
        seats,
    }
}

/// One of several parts of `0 .. count`, which together contain every number once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Portion {
    /// All numbers.
    All,
    /// `first`, and every `step`-th number after it.
    Every {
        /// The first number.
        first: u64,
        /// The distance between two numbers.
        step: u64,
    },
    /// A contiguous range.
    Block(Range<u64>),
}

impl Portion {
    /// Returns part `nth` of `parts` parts of `0 .. count`.
    pub fn new(assign: Assign, (nth, parts): (usize, usize), count: u64) -> Self {
        let (nth, parts) = (nth as u64, parts.max(1) as u64);
        match assign {
            Assign::Dynamic => Self::All,
            Assign::Modulo => Self::Every {
                first: nth,
                step: parts,
            },
            Assign::Block => Self::Block(block(nth, parts, count)),
        }
    }

    /// Returns whether the part contains `number`.
    pub fn has(&self, number: u64) -> bool {
        match self {
            Self::All => true,
            Self::Every { first, step } => number % step == *first,
            Self::Block(range) => range.contains(&number),
        }
    }
}

/// Cuts as `numpy.array_split` does: the first `count % parts` blocks are longer by one.
fn block(nth: u64, parts: u64, count: u64) -> Range<u64> {
    let (each, longer) = (count / parts, count % parts);
    let start = nth * each + nth.min(longer);
    start..start + each + u64::from(nth < longer)
}

/// Returns which of `parts` parts of `0 .. count` has `number`; with [`Assign::Dynamic`] each part
/// has all numbers, and this is the first.
fn owner(assign: Assign, number: u64, parts: usize, count: u64) -> usize {
    let parts = parts.max(1) as u64;
    let (each, longer) = (count / parts, count % parts);
    let of_longer = longer * (each + 1);
    let owner = match assign {
        Assign::Dynamic => 0,
        Assign::Modulo => number % parts,
        Assign::Block if number < of_longer => number / (each + 1),
        Assign::Block => longer + (number - of_longer) / each.max(1),
    };
    owner as usize
}

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
                    let nth = owner(assign, episode, world_size, count);
                    if give((nth + job.index.0) % world_size) == 0 {
                        return 0;
                    }
                }
            }
            (None, ..) => _ = give(owner(assign, position, world_size, count)),
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
mod tests;
