//! What the ranks of an evaluation have to do: their jobs, without the episodes that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jobs::assign::{Assign, Work, work};
use jobs::job::{Job, JobIndex, Length};
use jobs::journal::{self, Line};
use jobs::layout::RunFolder;
use jobs::plan::{Difference, RunPlan};
use jobs::progress;

use crate::plan::eval::EvalPlan;

/// Most bytes of journals that are read.
const MOST_BYTES: u64 = 128 << 20;

/// The work that a run folder already has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DoneWork {
    /// Finished episodes by job, ascending.
    episodes: BTreeMap<JobIndex, Vec<u64>>,
    /// Jobs without a number of episodes that ran to their end.
    finished: BTreeSet<JobIndex>,
}

/// How much of a rank's part of a job is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    Nothing,
    Episodes(u64),
    /// All of a job that does not count episodes.
    All,
}

impl DoneWork {
    /// Reads what is done of a plan in its run folder.
    ///
    /// # Errors
    /// Returns the errors of the file system, and an error for journals that are too long to be
    /// read here.
    pub(super) fn read(eval: &EvalPlan) -> io::Result<Self> {
        let folder = RunFolder::new(&eval.output);
        let Ok(found) = RunPlan::read(&folder) else {
            return Ok(Self::default());
        };
        check_size(&folder)?;
        let journals = journal::read_all(&folder.journals(), &found.accepted())?;
        let lines = || journals.iter().flat_map(|contents| &contents.lines);
        Ok(Self::of(&found, &eval.run, lines))
    }

    /// Returns what is done of the plan `now`, from the lines of the plan that was found.
    fn of<'a, L: Iterator<Item = &'a Line>>(
        found: &RunPlan,
        now: &RunPlan,
        lines: impl Fn() -> L,
    ) -> Self {
        let mut by_job = progress::done(lines());
        let mut done = Self::default();
        let compared = Difference::between(found, now).jobs;
        for (before, job) in found.jobs.iter().zip(compared) {
            let Some(after) = job.after.filter(|_| job.stays()) else {
                continue;
            };
            if let Some(episodes) = by_job.remove(&before.index) {
                done.episodes.insert(after, episodes);
            }
            let is_counted = matches!(before.length, Length::Episodes(_));
            if !is_counted && progress::finished(lines(), before, None) {
                done.finished.insert(after);
            }
        }
        done
    }

    /// Returns the number of finished episodes of a job that it still counts.
    pub(super) fn of_job(&self, job: &Job) -> u64 {
        let episodes = self.episodes.get(&job.index);
        let counted = episodes.into_iter().flatten();
        counted.filter(|episode| job.selects(**episode)).count() as u64
    }

    /// Returns what is left of one rank's part of a job.
    pub(super) fn left(&self, work: &Work) -> Left {
        let job = &work.job;
        let is_done = |episode: &u64| {
            let done = self.episodes.get(&job.index);
            done.is_some_and(|done| done.binary_search(episode).is_ok())
        };
        match job.length {
            Length::Episodes(count) => {
                match work.episodes(0..count).filter(|one| !is_done(one)).count() {
                    0 => Left::Nothing,
                    left => Left::Episodes(left as u64),
                }
            }
            Length::Steps(_) | Length::Policy if self.finished.contains(&job.index) => {
                Left::Nothing
            }
            Length::Steps(_) | Length::Policy => Left::All,
        }
    }

    /// Returns whether nothing of a job is left.
    pub(super) fn is_all_of(&self, job: &Job) -> bool {
        match job.length {
            Length::Episodes(count) => self.of_job(job) >= job.selected(count),
            Length::Steps(_) | Length::Policy => self.finished.contains(&job.index),
        }
    }
}

/// Refuses journals that take too long to read.
fn check_size(folder: &RunFolder) -> io::Result<()> {
    let mut bytes = 0;
    for path in journal::files(&folder.journals())? {
        bytes += std::fs::metadata(path)?.len();
    }
    if bytes > MOST_BYTES {
        let reason = format!("the journals have {bytes} bytes, which takes too long to read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    Ok(())
}

/// Returns the work of a rank that is not done, in the order in which it is done; `None` if leases
/// decide during the run.
pub(super) fn of_rank(eval: &EvalPlan, done: &DoneWork, rank: usize) -> Option<Vec<(Work, Left)>> {
    if eval.assignment.assign == Assign::Dynamic {
        return None;
    }
    let all = work(
        &eval.run.jobs,
        &eval.seating.placement,
        eval.assignment,
        rank,
    );
    let left = all.into_iter().map(|work| {
        let left = done.left(&work);
        (work, left)
    });
    Some(left.filter(|(_, left)| *left != Left::Nothing).collect())
}
