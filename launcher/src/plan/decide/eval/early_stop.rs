//! What limits a sequential test (`--stop-when`): the user should know before the run.

use jobs::count::counted;
use jobs::job::{Job, Length};
use report::compare::sequential::SequentialComparison;

use crate::say::note::Note;

/// Returns a note if the test can use fewer episodes than the run has, or if its jobs count less.
pub(super) fn note(comparison: &SequentialComparison, jobs: &[Job]) -> Option<Note> {
    let rounds = comparison.comparable_rounds();
    let clustered = comparison.clustered_jobs();
    let longest = jobs.iter().filter_map(length).max().unwrap_or(0);
    let mut limits = Vec::new();
    if rounds < longest {
        limits.push(format!(
            "the test can compare {} of {longest} in each job, those of the shortest job{}",
            counted(rounds, "episode"),
            match comparison.claim() {
                Some(_) => "",
                None => " that the reference has",
            }
        ));
    }
    if clustered > 0 {
        limits.push(format!(
            "{clustered} jobs have the same `seed` as another one and count together, so that the \
             test needs more episodes than with seeds of their own"
        ));
    }
    if let Some(margin) = comparison.smallest_margin() {
        limits.push(format!(
            "if this run solves the claimed share, all of its episodes exclude a difference of \
             {:.1} points",
            margin * 100.0
        ));
    }
    (!limits.is_empty()).then(|| Note::info(limits.join("; ")))
}

fn length(job: &Job) -> Option<u64> {
    match job.length {
        Length::Episodes(count) => Some(count),
        Length::Steps(_) | Length::Policy => None,
    }
}
