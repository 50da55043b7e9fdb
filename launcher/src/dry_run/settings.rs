//! Describes what only some evaluations have: a latency, a test that may end them, trackers.

use std::collections::BTreeMap;

use jobs::count::{counted, listed};
use jobs::job::Job;
use jobs::journal::Question;
use jobs::latency::Delay;
use jobs::tracking::Tracker;

use crate::dry_run::evaluation::NAMED;
use crate::plan::eval::EvalPlan;

/// Returns the latencies of jobs that have one, each with its jobs.
pub(super) fn latencies<'a>(jobs: impl Iterator<Item = &'a Job>) -> Vec<String> {
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for job in jobs {
        if let Some(latency) = job.latency.filter(|latency| !latency.is_none()) {
            let text = match latency.delay {
                Delay::Steps(steps) => counted(steps, "step"),
                Delay::Ms(ms) => format!("{ms} ms"),
                Delay::Measured => "as measured".to_owned(),
            };
            found.entry(text).or_default().push(&job.name);
        }
    }
    found
        .into_iter()
        .map(|(latency, names)| format!("{latency} for each inference: {}", listed(&names, NAMED)))
        .collect()
}

/// Returns when a sequential test ends the run.
pub(super) fn early_stop(eval: &EvalPlan) -> Option<String> {
    let stop = eval.early_stop.as_ref()?;
    let points = stop.margin * 100.0;
    let what = match stop.question {
        Question::Regression => format!("a loss of {points} points"),
        Question::Reproduction => format!("a difference of {points} points"),
    };
    Some(format!(
        "when {what} from `{}` is excluded or shown, at a level of {}",
        stop.against, stop.level
    ))
}

/// Returns the trackers that the run is logged to.
pub(super) fn trackers(eval: &EvalPlan) -> Option<String> {
    let trackers = eval.tracking.trackers();
    let names: Vec<_> = trackers.into_iter().map(Tracker::name).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
