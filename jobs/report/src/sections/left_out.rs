//! What a user has left out on the page of the run, and what a run that is over has not come to.
//!
//! Commands of the page belong to one launch. They count for a report only if that launch is the last
//! one: the next runs what was left out.

use jobs::job::{Job, Status};
use jobs::time::Moment;

use crate::merged::Merged;
use crate::merged::lives::Events;
use crate::{Context, JobReport, Report};

/// Why a run ended early that was stopped on its page.
pub(crate) const STOPPED_ON_PAGE: &str = "stopped on its page";

/// Names the jobs that were skipped or interrupted, and why the run has ended early.
pub(crate) fn name(merged: &Merged, context: &mut Context, per_job: &mut [JobReport]) {
    let launch = last_launch(merged);
    let commands = context.commands.take();
    let commands = commands.filter(|commands| launch == Some(commands.launch.as_str()));
    let commands = commands.unwrap_or_default();
    let is_to_run = |(job, _): &(&Job, &mut JobReport)| job.status == Status::Pending;
    let jobs = merged.plan.jobs.iter().zip(per_job).filter(is_to_run);
    let mut is_whole = true;
    for (job, report) in jobs {
        report.status = match report.status {
            Status::Running | Status::Pending if commands.skip.contains(&job.index) => {
                Status::Skipped
            }
            Status::Running if context.is_over => Status::Interrupted,
            status => status,
        };
        is_whole &= matches!(report.status, Status::Completed | Status::Skipped);
    }
    if commands.stop && context.is_over && !is_whole {
        let stopped = &mut context.stopped;
        stopped.get_or_insert_with(|| STOPPED_ON_PAGE.to_owned());
    }
}

/// Returns the launch of the rank that started last.
fn last_launch(merged: &Merged) -> Option<&str> {
    let starts = merged.state.events.iter().flat_map(Events::starts);
    let last = starts.max_by_key(|start| Moment::parse(&start.started))?;
    last.launch.as_deref()
}

impl JobReport {
    /// Returns the number of episodes that did not run because a user has skipped the job.
    pub fn skipped(&self) -> u64 {
        match self.status {
            Status::Skipped => self.rates.missing(),
            _ => 0,
        }
    }
}

impl Report {
    /// Returns the jobs that a user has skipped.
    pub fn skipped_jobs(&self) -> impl Iterator<Item = &JobReport> {
        let jobs = self.per_job.iter();
        jobs.filter(|job| job.status == Status::Skipped)
    }

    /// Returns whether the run lacks only what a user has left out on its page.
    pub fn lacks_only_what_was_asked(&self) -> bool {
        let is_stopped = self.run.stopped.as_deref() == Some(STOPPED_ON_PAGE);
        let is_fine = |job: &JobReport| match job.status {
            Status::Completed | Status::Skipped => true,
            Status::Pending | Status::Running | Status::Interrupted => is_stopped,
            Status::Failed => false,
        };
        (is_stopped || self.failures_count == 0 && self.skipped_jobs().next().is_some())
            && self.run.missing_ranks.is_empty()
            && self.per_job.iter().all(is_fine)
    }
}
