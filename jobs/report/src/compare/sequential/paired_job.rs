//! A job of a run, paired with the same job of a reference.

use jobs::episode::EpisodeOutcome;
use jobs::format::tenths;
use jobs::job::{Job, Length};
use jobs::refusal::Refusal;
use jobs::seed;

use crate::compare::Side;
use crate::stats::Solved;

/// A job of the run.
#[derive(Clone, Debug)]
pub(super) struct PairedJob {
    /// Jobs with the same stream of seeds form a cluster.
    pub(super) cluster: u64,
    /// Outcomes of the reference by episode; `None` for an error. With a claim, nothing was solved:
    /// the difference is this run's rate.
    pub(super) reference: Vec<Option<bool>>,
    /// Outcomes of this run by episode, as far as they have ended; an error is `Some(None)`.
    pub(super) ended: Vec<Option<Option<bool>>>,
    pub(super) name: String,
    /// All episodes of the reference, whether they have a pair or not; empty with a claim.
    pub(super) rates_of_reference: Solved,
}

impl PairedJob {
    pub(super) fn without_reference(job: &Job, seed: u64) -> Result<Self, Refusal> {
        let count = episodes(job)? as usize;
        Ok(Self {
            cluster: seed::episode(seed, job, 0),
            name: job.name.clone(),
            rates_of_reference: Solved::default(),
            ended: vec![None; count],
            reference: vec![Some(false); count],
        })
    }

    pub(super) fn new(job: &Job, seed: u64, reference: &Side) -> Result<Self, Refusal> {
        let (name, path) = (job.name.clone(), reference.path().display().to_string());
        let count = episodes(job)?;
        let Some(side) = reference.jobs.get(&job.name) else {
            return Err(Refusal::new(format_args!("`{path}` has no job `{name}`")));
        };
        let outcomes = || side.episodes.values().map(|episode| episode.outcome);
        let Some(first) = outcomes().next().filter(|first| first.episode == 0) else {
            return Err(Refusal::new(format_args!(
                "`{path}` has no episode 0 of job `{name}`"
            )));
        };
        if first.seed != seed::episode(seed, job, 0) {
            return Err(Refusal::new(format_args!(
                "job `{name}` has other seeds in `{path}`; give both runs the same --seed, or \
                 their jobs the same `seed`"
            )));
        }
        let is_paired = |(number, outcome): &(u64, EpisodeOutcome)| {
            outcome.episode == *number && outcome.seed == seed::episode(seed, job, *number)
        };
        let reference: Vec<_> = (0..count)
            .zip(outcomes())
            .take_while(is_paired)
            .map(|(_, outcome)| outcome.success)
            .collect();
        Ok(Self {
            cluster: first.seed,
            name,
            rates_of_reference: Solved::of(outcomes().map(|outcome| outcome.success)),
            ended: vec![None; reference.len()],
            reference,
        })
    }
}

/// Returns a rate, its counts and its interval; `-` without an episode.
pub(super) fn rated(solved: Solved) -> String {
    match solved.rate().zip(solved.wilson95()) {
        None => "-".to_owned(),
        Some((rate, [low, high])) => format!(
            "{}, {solved} ({:.1} to {:.1})",
            tenths(rate),
            low * 100.0,
            high * 100.0
        ),
    }
}

fn episodes(job: &Job) -> Result<u64, Refusal> {
    match job.length {
        Length::Episodes(count) => Ok(count),
        Length::Steps(_) | Length::Policy => Err(Refusal::new(format_args!(
            "job `{}` has no num_episodes, so that its episodes have no pairs",
            job.name
        ))),
    }
}
