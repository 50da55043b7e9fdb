//! A job of a run, paired with the same job of a reference.

use std::fmt;

use jobs::job::{Job, Length};
use jobs::refusal::Refusal;
use jobs::seed;

use crate::compare::Side;
use crate::compare::side::EpisodeResult;
use crate::stats::wilson95;

/// A job of the run.
#[derive(Clone, Debug)]
pub(super) struct PairedJob {
    /// Jobs with the same stream of seeds form a cluster.
    pub(super) cluster: u64,
    /// Outcomes of the reference by episode; `None` for an error. With a claim, nothing was solved:
    /// the difference is this run's rate.
    pub(super) reference: Vec<Option<bool>>,
    /// Outcomes of this run by episode, as far as they have ended.
    pub(super) ended: Vec<Option<Ended>>,
    pub(super) name: String,
    /// All episodes of the reference, whether they have a pair or not; empty with a claim.
    pub(super) rates_of_reference: Rate,
}

/// Solved episodes of a job, and all of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rate {
    pub(super) solved: u64,
    pub(super) episodes: u64,
}

/// How an episode of this run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Scored(bool),
    Error,
}

impl PairedJob {
    pub(super) fn without_reference(job: &Job, seed: u64) -> Result<Self, Refusal> {
        let count = episodes(job)? as usize;
        Ok(Self {
            cluster: seed::episode(seed, job, 0),
            name: job.name.clone(),
            rates_of_reference: Rate::default(),
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
        let Some(first) = side.episodes.first().filter(|first| first.episode == 0) else {
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
        let is_paired = |(number, result): &(u64, &EpisodeResult)| {
            result.episode == *number && result.seed == seed::episode(seed, job, *number)
        };
        let outcomes: Vec<_> = (0..count)
            .zip(&side.episodes)
            .take_while(is_paired)
            .map(|(_, result)| result.solved)
            .collect();
        Ok(Self {
            cluster: first.seed,
            name,
            rates_of_reference: Rate::of(side.episodes.iter().map(|result| result.solved)),
            ended: vec![None; outcomes.len()],
            reference: outcomes,
        })
    }
}

impl Rate {
    /// Counts episodes; one that ended with an error is not solved.
    pub(super) fn of(outcomes: impl Iterator<Item = Option<bool>>) -> Self {
        outcomes.fold(Self::default(), |rate, solved| Self {
            solved: rate.solved + u64::from(solved == Some(true)),
            episodes: rate.episodes + 1,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { solved, episodes } = *self;
        match wilson95(solved, episodes) {
            None => write!(f, "-"),
            Some([low, high]) => write!(
                f,
                "{:.1} %, {solved} of {episodes} ({:.1} to {:.1})",
                100.0 * solved as f64 / episodes as f64,
                low * 100.0,
                high * 100.0
            ),
        }
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
