//! What a run is compared with, and what follows from the sums of a sequential test.

use std::fmt;

use jobs::journal::Claim;
use jobs::journal::{Question, Verdict};

use crate::compare::sequential::SequentialTest;
use crate::stats::anytime::PairedSums;
use crate::stats::binomial::clopper_pearson;
use crate::stats::paired::PairCounts;

/// What a run is compared with.
#[derive(Clone, Debug)]
pub(super) enum Reference {
    /// A run, as the command line named it.
    Run(String),
    /// A published rate of all jobs together, with its interval.
    Claim { claim: Claim, interval: [f64; 2] },
}

impl Reference {
    pub(super) fn of_claim(claim: Claim, test: SequentialTest) -> Self {
        let interval = clopper_pearson(claim.solved, claim.episodes, test.level / 2.0);
        Self::Claim { claim, interval }
    }

    pub(super) fn verdict(&self, test: SequentialTest, sums: &PairedSums) -> Option<Verdict> {
        match self {
            Self::Run(_) => test.verdict(sums),
            Self::Claim { interval, .. } => test.verdict_of_claim(sums, *interval),
        }
    }

    /// Returns the confidence sequence of the rate of this run minus that of the reference.
    pub(super) fn interval(&self, test: SequentialTest, sums: &PairedSums) -> [f64; 2] {
        match self {
            Self::Run(_) => sums.interval(test.level),
            Self::Claim { interval, .. } => {
                // The sequence is that of a mean from −1 to 1, and a rate is at least 0.
                let [low, high] = sums.interval(test.level / 2.0).map(|rate| rate.max(0.0));
                [low - interval[1], high - interval[0]]
            }
        }
    }

    pub(super) fn difference(&self, counts: &PairCounts) -> Option<f64> {
        let difference = counts.difference()?;
        Some(match self {
            Self::Run(_) => difference,
            Self::Claim { claim, .. } => difference - claim.rate(),
        })
    }

    pub(super) fn claim(&self) -> Option<Claim> {
        match self {
            Self::Run(_) => None,
            Self::Claim { claim, .. } => Some(*claim),
        }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(name) => f.write_str(name),
            Self::Claim { claim, .. } => write!(f, "{claim}"),
        }
    }
}

impl SequentialTest {
    /// Returns the verdict if these differences are enough for one.
    fn verdict(self, sums: &PairedSums) -> Option<Verdict> {
        let Self { margin, level, .. } = self;
        let half = level / 2.0;
        match self.question {
            Question::Regression if sums.is_above(-margin, half) => Some(Verdict::Passed),
            Question::Regression if sums.is_below(0.0, half) => Some(Verdict::Regression),
            Question::Reproduction
                if sums.is_above(-margin, level) && sums.is_below(margin, level) =>
            {
                Some(Verdict::Same)
            }
            Question::Reproduction if sums.is_above(0.0, half) || sums.is_below(0.0, half) => {
                Some(Verdict::Different)
            }
            Question::Regression | Question::Reproduction => None,
        }
    }

    /// Returns the verdict about the rate of a run, if it is enough for one. `low` and `high` are the
    /// interval of the claimed rate.
    fn verdict_of_claim(self, sums: &PairedSums, [low, high]: [f64; 2]) -> Option<Verdict> {
        let Self { margin, level, .. } = self;
        // The claim has half of the level, and each side of this run's rate a quarter.
        let is_above = |rate: f64| rate <= -1.0 || sums.is_above(rate, level / 4.0);
        let is_below = |rate: f64| rate >= 1.0 || sums.is_below(rate, level / 4.0);
        match self.question {
            Question::Regression if is_above(high - margin) => Some(Verdict::Passed),
            Question::Regression if is_below(low) => Some(Verdict::Regression),
            Question::Reproduction if is_above(high - margin) && is_below(low + margin) => {
                Some(Verdict::Same)
            }
            Question::Reproduction if is_above(high) || is_below(low) => Some(Verdict::Different),
            Question::Regression | Question::Reproduction => None,
        }
    }
}
