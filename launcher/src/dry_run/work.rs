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

    /// Returns the number of episodes that are left of one rank's part of a job; `None` if the job
    /// does not count them.
    fn left(&self, work: &Work) -> Option<u64> {
        let job = &work.job;
        let Length::Episodes(count) = job.length else {
            return self.finished.contains(&job.index).then_some(0);
        };
        let done = self.episodes.get(&job.index).map_or(&[][..], Vec::as_slice);
        let left = work.episodes(0..count);
        Some(left.filter(|one| done.binary_search(one).is_err()).count() as u64)
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

/// Returns the work of a rank that is not done, in the order in which it is done, with the number of
/// its episodes if they are counted; `None` if leases decide during the run.
pub(super) fn of_rank(
    eval: &EvalPlan,
    done: &DoneWork,
    rank: usize,
) -> Option<Vec<(Work, Option<u64>)>> {
    let (assignment, placement) = (eval.assignment, &eval.seating.placement);
    if assignment.assign == Assign::Dynamic {
        return None;
    }
    let all = work(&eval.run.jobs, placement, assignment, rank);
    let left = all.into_iter().map(|work| {
        let left = done.left(&work);
        (work, left)
    });
    Some(left.filter(|(_, left)| *left != Some(0)).collect())
}
