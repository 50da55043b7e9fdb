//! What the ranks of an evaluation have to do: their jobs, without the episodes that are done.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jobs::assign::{Assign, Work, work};
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::{self, Line};
use jobs::layout::RunFolder;
use jobs::plan::{Difference, RunPlan};
use jobs::progress;

use crate::dry_run::history;
use crate::plan::eval::EvalPlan;

/// The work that a run folder already has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DoneWork {
    /// Finished episodes by job, ascending.
    episodes: BTreeMap<JobIndex, Vec<u64>>,
    /// Jobs without a number of episodes that ran to their end.
    finished: BTreeSet<JobIndex>,
}

/// How much of a job is left: episodes, steps of each environment, or the whole job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// Episodes, if the job counts them.
    pub(super) episodes: Option<u64>,
    /// Units that its time is estimated by: episodes, steps of each environment, or 1 for all of a
    /// replay.
    pub(super) units: u64,
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
        history::check_size(&folder)?;
        let journals = journal::read_own(&folder.journals(), &found.accepted())?;
        let lines = || journals.iter().flat_map(|(_, contents)| &contents.lines);
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
        for job in Difference::between(found, now).jobs {
            let Some(after) = job.after.filter(|_| job.stays()) else {
                continue;
            };
            if let Some(episodes) = by_job.remove(&job.before) {
                done.episodes.insert(after, episodes);
            }
            let before = found.jobs.iter().find(|one| one.index == job.before);
            let is_finished = before.is_some_and(|one| {
                !matches!(one.length, Length::Episodes(_)) && progress::finished(lines(), one, None)
            });
            if is_finished {
                done.finished.insert(after);
            }
        }
        done
    }

    /// Returns the number of finished episodes of a job that it still counts.
    pub(super) fn of_job(&self, job: &Job) -> u64 {
        let episodes = self.episodes.get(&job.index);
        let counted = episodes.into_iter().flatten().filter(|episode| {
            let is_planned = match job.length {
                Length::Episodes(count) => **episode < count,
                Length::Steps(_) | Length::Policy => true,
            };
            is_planned && job.selects(**episode)
        });
        counted.count() as u64
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
                let left = work.episodes(0..count).filter(|episode| !is_done(episode));
                let left = left.count() as u64;
                Left {
                    episodes: Some(left),
                    units: left,
                }
            }
            _ if self.finished.contains(&job.index) => Left {
                episodes: None,
                units: 0,
            },
            Length::Steps(steps) => Left {
                episodes: None,
                units: steps.saturating_mul(job.num_rebuilds),
            },
            Length::Policy => Left {
                episodes: None,
                units: 1,
            },
        }
    }

    /// Returns what is left of a whole job.
    pub(super) fn left_of(&self, job: &Job) -> Left {
        match job.length {
            _ if job.status != Status::Pending => Left {
                episodes: Some(0),
                units: 0,
            },
            Length::Episodes(count) => {
                let left = job.selected(count).saturating_sub(self.of_job(job));
                Left {
                    episodes: Some(left),
                    units: left,
                }
            }
            Length::Steps(_) | Length::Policy if self.finished.contains(&job.index) => Left {
                episodes: None,
                units: 0,
            },
            Length::Steps(steps) => Left {
                episodes: None,
                units: steps.saturating_mul(job.num_rebuilds),
            },
            Length::Policy => Left {
                episodes: None,
                units: 1,
            },
        }
    }
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
    Some(left.filter(|(_, left)| left.units > 0).collect())
}
