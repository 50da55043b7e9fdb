//! What a run is compared with, its jobs paired with those of the reference, and what follows from
//! the sums of a sequential test.

use jobs::episode::EpisodeOutcome;
use jobs::format::tenths;
use jobs::job::{Job, Length};
use jobs::journal::{Claim, Question, Verdict};
use jobs::refusal::Refusal;
use jobs::seed;

use crate::compare::Side;
use crate::compare::sequential::SequentialTest;
use crate::stats::Solved;
use crate::stats::anytime::PairedSums;
use crate::stats::paired::PairCounts;
use crate::stats::tails::clopper_pearson;

/// What a run is compared with.
#[derive(Clone, Debug)]
pub(super) struct Reference {
    /// A run as the command line named it, or the published rate as text.
    pub(super) name: String,
    /// A published rate of all jobs together.
    pub(super) claim: Option<Claim>,
    /// What the claim leaves possible; of a run, which is compared pair by pair, only 0.
    interval: [f64; 2],
}

impl Reference {
    pub(super) fn of_run(name: String) -> Self {
        Self {
            name,
            claim: None,
            interval: [0.0; 2],
        }
    }

    pub(super) fn of_claim(claim: Claim, test: SequentialTest) -> Self {
        Self {
            name: claim.to_string(),
            claim: Some(claim),
            interval: clopper_pearson(claim.solved, claim.episodes, test.level / 2.0),
        }
    }

    /// Returns the verdict if these differences are enough for one.
    pub(super) fn verdict(&self, test: SequentialTest, sums: &PairedSums) -> Option<Verdict> {
        let (margin, level) = (test.margin, test.level);
        let [low, high] = self.interval;
        // A claim has half of the level, and each side of this run's rate a quarter.
        let (side, both) = match self.claim {
            None => (level / 2.0, level),
            Some(_) => (level / 4.0, level / 4.0),
        };
        let is_above = |rate: f64, level| rate <= -1.0 || sums.is_above(rate, level);
        let is_below = |rate: f64, level| rate >= 1.0 || sums.is_below(rate, level);
        match test.question {
            Question::Regression if is_above(high - margin, side) => Some(Verdict::Passed),
            Question::Regression if is_below(low, side) => Some(Verdict::Regression),
            Question::Reproduction
                if is_above(high - margin, both) && is_below(low + margin, both) =>
            {
                Some(Verdict::Same)
            }
            Question::Reproduction if is_above(high, side) || is_below(low, side) => {
                Some(Verdict::Different)
            }
            Question::Regression | Question::Reproduction => None,
        }
    }

    /// Returns the confidence sequence of the rate of this run minus that of the reference.
    pub(super) fn interval(&self, test: SequentialTest, sums: &PairedSums) -> [f64; 2] {
        if self.claim.is_none() {
            return sums.interval(test.level);
        }
        // The sequence is that of a mean from −1 to 1, and a rate is at least 0.
        let [low, high] = sums.interval(test.level / 2.0).map(|rate| rate.max(0.0));
        [low - self.interval[1], high - self.interval[0]]
    }

    pub(super) fn difference(&self, counts: &PairCounts) -> Option<f64> {
        let claimed = self.claim.map_or(0.0, Claim::rate);
        Some(counts.difference()? - claimed)
    }
}

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
        let (name, path) = (job.name.clone(), reference.path.display().to_string());
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
