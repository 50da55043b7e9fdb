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
//!
//! Stages: ranges of episodes that the ranks run one after the other, each over all jobs.
//!
//! ```text
//!            0    5    10   15     22         33
//! job 0      ├────┼────┼────┼──────┼──────────┤ …     all jobs up to episode 5, then all up to 10
//! job 1      ├────┼────┼────┼──────┼──────────┤ …
//! ```
//! A test that looks at episode `r` of every job would wait for the last job if ranks ran job after
//! job. Each stage begins a job again, which costs a build of its environments. Stages therefore
//! grow by half of what was done before: their number is logarithmic, and a run that ends at any
//! point has run at most half more than the test needed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::format::word;
use crate::job::{Job, JobIndex, Length, Status};
use crate::numbers::Numbers;
use crate::placement::{Placement, Seat, Share};
use crate::refusal::Refusal;

pub mod lease;

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
    fn new(job: &Job, part: Portion, placement: &Placement, rank: usize) -> Self {
        let (share, seats) = match job.total_num_envs {
            Some(total) => (
                Some(Share::of(rank, placement.world_size(), total)),
                placement.seats(rank, total),
            ),
            None => (None, placement.home(rank, job.num_envs)),
        };
        Self {
            job: Job {
                num_envs: seats.len(),
                ..job.clone()
            },
            share,
            part,
            seats,
        }
    }

    /// Returns whether this rank runs `episode`.
    pub fn runs(&self, episode: u64) -> bool {
        self.job.selects(episode)
            && self.part.has(episode)
            && self.share.is_none_or(|share| share.slot(episode).is_some())
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
    let Assignment { assign, shard } = assignment;
    let world_size = placement.world_size().max(1);
    let by_job = Portion::new(assign, (rank, world_size), jobs.len() as u64);
    let of_rank = |(position, job): (u64, &Job)| {
        let part = match (job.total_num_envs, shard, job.length) {
            (None, Shard::Episodes, Length::Episodes(count)) => {
                // The first part, which may be larger than the others, goes to another rank from
                // job to job.
                let nth = (rank + world_size - job.index.0 % world_size) % world_size;
                Portion::new(assign, (nth, world_size), count)
            }
            (None, ..) if !by_job.has(position) => return None,
            _ => Portion::ALL,
        };
        Some(Work::new(job, part, placement, rank))
    };
    pending(jobs).filter_map(of_rank).collect()
}

/// Returns the jobs that are to run, with their positions.
fn pending(jobs: &[Job]) -> impl Iterator<Item = (u64, &Job)> {
    let positions = (0..).zip(jobs);
    positions.filter(|(_, job)| job.status == Status::Pending)
}

/// One of several parts of `0 .. count`, which together contain every number once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portion {
    assign: Assign,
    nth: usize,
    parts: usize,
    count: u64,
}

impl Portion {
    /// All numbers.
    const ALL: Self = Self {
        assign: Assign::Dynamic,
        nth: 0,
        parts: 1,
        count: 0,
    };

    /// Returns part `nth` of `parts` parts of `0 .. count`; with [`Assign::Dynamic`], each has all.
    fn new(assign: Assign, (nth, parts): (usize, usize), count: u64) -> Self {
        match assign {
            Assign::Dynamic => Self::ALL,
            Assign::Modulo | Assign::Block => Self {
                assign,
                nth,
                parts,
                count,
            },
        }
    }

    /// Returns whether the part contains `number`.
    pub fn has(&self, number: u64) -> bool {
        owner(self.assign, number, self.parts, self.count) == self.nth
    }
}

/// Returns which of `parts` parts of `0 .. count` has `number`. Blocks are those of
/// `numpy.array_split`: the first `count % parts` are longer by one.
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
    if assign == Assign::Dynamic {
        let pieces = pending(jobs).map(|(_, job)| pieces(job, shard));
        return world_size.saturating_sub(pieces.fold(0, usize::saturating_add));
    }
    let mut busy = BTreeSet::new();
    for (position, job) in pending(jobs) {
        match (job.total_num_envs, shard, job.length) {
            (.., Length::Episodes(count)) if job.selected(count) == 0 => {}
            (Some(_), ..) => return 0,
            (None, Shard::Episodes, Length::Episodes(count)) => {
                for episode in job.selection(count).iter() {
                    let nth = owner(assign, episode, world_size, count);
                    busy.insert((nth + job.index.0) % world_size);
                    if busy.len() == world_size {
                        return 0;
                    }
                }
            }
            (None, ..) => drop(busy.insert(owner(assign, position, world_size, count))),
        }
    }
    world_size - busy.len()
}

/// Returns how many units ranks may take of a job; of a shared one, one for each environment.
fn pieces(job: &Job, shard: Shard) -> usize {
    match (job.total_num_envs, shard, job.length) {
        (Some(total), ..) => total,
        (None, Shard::Episodes, Length::Episodes(count)) => {
            usize::try_from(job.selected(count)).unwrap_or(usize::MAX)
        }
        (None, ..) => 1,
    }
}

/// Number of episodes of the first stage, at least: few enough to stop a hopeless policy at once.
const FIRST: u64 = 5;

/// Returns the stages of a run on `world_size` ranks, all of which must agree on them. A run with a
/// single job has one stage, because its episodes are in order anyway.
pub fn stages(jobs: &[Job], assignment: Assignment, world_size: usize) -> Vec<Range<u64>> {
    let jobs: Vec<&Job> = pending(jobs).map(|(_, job)| job).collect();
    let count = |job: &&Job| match job.length {
        Length::Episodes(count) => count,
        Length::Steps(_) | Length::Policy => 1,
    };
    let longest = jobs.iter().map(count).max().unwrap_or(0);
    if jobs.len() < 2 {
        return cut(longest, longest.max(1));
    }
    let width = |job: &&Job| side_by_side(job, assignment, world_size);
    let widest = jobs.iter().map(width).max().unwrap_or(1);
    cut(longest, widest.max(FIRST))
}

/// Returns how many episodes of a job run at the same time.
fn side_by_side(job: &Job, assignment: Assignment, world_size: usize) -> u64 {
    let is_split = assignment.shard == Shard::Episodes || assignment.assign == Assign::Dynamic;
    match (job.total_num_envs, is_split) {
        (Some(total), _) => total as u64,
        (None, true) => (job.num_envs as u64).saturating_mul(world_size as u64),
        (None, false) => job.num_envs as u64,
    }
}

/// Cuts `0..count` into stages of at least `least` episodes.
fn cut(count: u64, least: u64) -> Vec<Range<u64>> {
    let mut stages = Vec::new();
    let mut begin = 0;
    while begin < count {
        let end = (begin + least.max(begin / 2)).min(count);
        stages.push(begin..end);
        begin = end;
    }
    stages
}

impl Work {
    /// Returns the episodes of a stage; `None` if this rank has none of them. The job must not
    /// select episodes itself.
    pub fn in_stage(&self, stage: &Range<u64>) -> Option<Self> {
        let Length::Episodes(count) = self.job.length else {
            return (stage.start == 0).then(|| self.clone());
        };
        let episodes = stage.start..stage.end.min(count);
        self.episodes(episodes.clone()).next()?;
        if episodes == (0..count) {
            return Some(self.clone());
        }
        let job = Job {
            only: Some(Numbers::between(episodes)),
            ..self.job.clone()
        };
        Some(Self {
            job,
            ..self.clone()
        })
    }
}

/// The selected jobs with their selected episodes; written as `push;reach:0,3-5`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Only(BTreeMap<String, Option<Numbers>>);

impl Only {
    /// Returns the selected jobs with their selected episodes, in the order of the file. They are
    /// the jobs of the run, so they are numbered anew.
    ///
    /// # Errors
    /// Refuses the first name or number that does not fit.
    pub fn choose(&self, jobs: Vec<Job>) -> Result<Vec<Job>, Refusal> {
        for (name, numbers) in &self.0 {
            let Some(job) = jobs.iter().find(|job| job.name == *name) else {
                let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
                return Err(Refusal::unknown("--only", "job", name, &names));
            };
            check(job, numbers.as_ref())?;
        }
        let mut chosen = Vec::new();
        for job in jobs {
            if let Some(only) = self.0.get(&job.name) {
                let index = JobIndex(chosen.len());
                let only = only.clone();
                chosen.push(Job { index, only, ..job });
            }
        }
        Ok(chosen)
    }
}

fn refused(reason: impl fmt::Display) -> Refusal {
    Refusal::at("--only", reason)
}

fn check(job: &Job, numbers: Option<&Numbers>) -> Result<(), Refusal> {
    let name = &job.name;
    if job.status != Status::Pending {
        let status = word(job.status);
        return Err(refused(format_args!(
            "job `{name}` is {status}, only pending jobs run"
        )));
    }
    match (numbers.map(Numbers::last), job.length) {
        (Some(found), Length::Episodes(count)) if found >= count => Err(refused(format_args!(
            "job `{name}` has no episode {found}: it has {count}, numbered from 0"
        ))),
        (Some(_), Length::Steps(_) | Length::Policy) => Err(refused(format_args!(
            "job `{name}` has no num_episodes, so its episodes cannot be chosen; use `{name}` \
             alone"
        ))),
        _ => Ok(()),
    }
}

impl FromStr for Only {
    type Err = Refusal;

    /// A job that is named twice runs the episodes of both entries; an entry without numbers
    /// selects the whole job.
    fn from_str(text: &str) -> Result<Self, Refusal> {
        let mut jobs: BTreeMap<String, Option<Numbers>> = BTreeMap::new();
        for piece in text
            .split(';')
            .map(str::trim)
            .filter(|piece| !piece.is_empty())
        {
            let (name, numbers) = entry(piece)?;
            let joined = match (jobs.remove(&name), numbers) {
                (None, numbers) => numbers,
                (Some(Some(before)), Some(numbers)) => Some(before.union(&numbers)),
                (Some(_), _) => None,
            };
            jobs.insert(name, joined);
        }
        if jobs.is_empty() {
            return Err(Refusal::new(
                "no job is named, expected `JOB` or `JOB:0,3-5`",
            ));
        }
        Ok(Self(jobs))
    }
}

/// Parses one entry. A job name may contain colons; text after the last one that looks like numbers
/// is taken as numbers.
fn entry(piece: &str) -> Result<(String, Option<Numbers>), Refusal> {
    let looks_like_numbers = |text: &str| {
        text.chars()
            .all(|letter| letter.is_ascii_digit() || ",- ".contains(letter))
    };
    match piece.rsplit_once(':') {
        Some((name, numbers)) if looks_like_numbers(numbers) => {
            Ok((name.trim().to_owned(), Some(numbers.parse()?)))
        }
        _ => Ok((piece.to_owned(), None)),
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (name, numbers)) in self.0.iter().enumerate() {
            f.write_str(if nth > 0 { ";" } else { "" })?;
            f.write_str(name)?;
            if let Some(numbers) = numbers {
                write!(f, ":{numbers}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Only {
    type Error = Refusal;

    fn try_from(text: String) -> Result<Self, Refusal> {
        text.parse()
    }
}

impl From<Only> for String {
    fn from(only: Only) -> Self {
        only.to_string()
    }
}

#[cfg(test)]
mod tests;
