//! Counts and rates of episodes.

use super::merged::Merged;
use super::record::Record;
use super::schema::Rates;
use crate::job::Job;
use crate::stats::{mean, wilson95};

/// Of several jobs together.
pub(super) fn of_jobs<'a>(merged: &Merged, jobs: impl Iterator<Item = &'a Job> + Clone) -> Rates {
    let expected = jobs.clone().map(|job| merged.expected(job)).sum();
    rates(expected, jobs.flat_map(|job| &merged.lines(job.index).episodes))
}

fn rates<'a>(expected: Option<u64>, episodes: impl Iterator<Item = &'a Record> + Clone) -> Rates {
    let scored = || episodes.clone().filter_map(|record| Some((record, record.outcome.ok()?)));
    let successes = scored().filter(|(_, scored)| scored.solved).count() as u64;
    let (found, scored_count) = (episodes.clone().count() as u64, scored().count() as u64);
    let share = |of: u64| (of > 0).then(|| successes as f64 / of as f64);
    Rates {
        expected,
        episodes: found,
        scored: scored_count,
        successes,
        errors: found - scored_count,
        success_rate: share(found),
        wilson95: wilson95(successes, found),
        completion_only_rate: share(scored_count),
        completion_only_wilson95: wilson95(successes, scored_count),
        success_at_end: mean(scored().filter_map(|(_, scored)| Some(f64::from(u8::from(scored.solved_at_end?))))),
        mean_return: mean(scored().map(|(record, _)| record.return_)),
        mean_length: mean(scored().map(|(record, _)| f64::from(record.length))),
    }
}
