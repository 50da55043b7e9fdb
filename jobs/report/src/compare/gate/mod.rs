//! The gate of a comparison: has B lost more than a margin against A, has it not, or is it too early
//! to tell?
//!
//! ```text
//!                       −margin         0
//!  ├────── interval ──────┤ │           │         regression: p < 0.05, and not within the margin
//!            ├──────────────┼───────────┼──┤      undecided: more episodes would tell
//!                           │ ├─────────┼────┤    passed: a loss of the margin is excluded
//! ```
//! The interval is what a [test of non-inferiority](crate::stats::non_inferiority) does not exclude, and
//! p McNemar's. A policy that really loses the margin passes in at most 2.5 % of all comparisons, and
//! one that is as good as A is called a regression in at most 2.5 %: the tests enumerate it.

use std::fmt;

use jobs::journal::Verdict;
use serde::Serialize;

use crate::stats::paired::PairCounts;

/// p-values below this are significant.
const LEVEL: f64 = 0.05;

/// Number of pairs beyond which no further ones are proposed.
const MOST_PAIRS: u64 = 10_000_000;

/// The largest loss that is accepted, as a difference of rates: 0.05 is five percentage points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gate {
    /// Between 0 and 1, both excluded: a policy cannot lose more than everything.
    pub margin: f64,
}

/// A gate and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GateResult {
    /// The margin, as a difference of rates.
    pub margin: f64,
    /// What it says: passed, regression or undecided.
    pub verdict: Verdict,
    /// The smallest loss that is excluded at 2.5 %, as a difference of rates; `null` if none is.
    pub excluded_loss: Option<f64>,
    /// If it is undecided, the number of pairs that would do if they turned out as those that there
    /// are; `None` if there are no pairs, or if too many would be needed.
    pub pairs_needed: Option<u64>,
}

impl Gate {
    /// Judges the pairs of a comparison.
    pub fn judge(self, counts: PairCounts) -> GateResult {
        let verdict = self.decided(counts).unwrap_or(Verdict::Undecided);
        let is_undecided = verdict == Verdict::Undecided;
        GateResult {
            margin: self.margin,
            verdict,
            excluded_loss: counts.excluded_loss(),
            pairs_needed: is_undecided.then(|| self.pairs_needed(counts)).flatten(),
        }
    }

    /// Returns the verdict if there are enough pairs for one.
    fn decided(self, counts: PairCounts) -> Option<Verdict> {
        if counts.excludes_loss(self.margin) {
            return Some(Verdict::Passed);
        }
        let is_lost = counts.only_a > counts.only_b;
        let is_significant = counts.mcnemar().is_some_and(|test| test.p < LEVEL);
        (is_lost && is_significant).then_some(Verdict::Regression)
    }

    /// Returns the number of pairs with which there would be a verdict if all outcomes kept their
    /// shares.
    fn pairs_needed(self, counts: PairCounts) -> Option<u64> {
        let count = counts.count();
        if count == 0 {
            return None;
        }
        let is_enough = |pairs: u64| self.decided(scaled(counts, pairs)).is_some();
        let mut enough = count;
        while !is_enough(enough) {
            enough = enough.checked_mul(2).filter(|pairs| *pairs <= MOST_PAIRS)?;
        }

        let mut too_few = enough / 2;
        while enough - too_few > 1 {
            let middle = too_few.midpoint(enough);
            match is_enough(middle) {
                true => enough = middle,
                false => too_few = middle,
            }
        }
        Some(enough)
    }
}

/// Returns `pairs` pairs with the same shares of outcomes, up to rounding.
fn scaled(counts: PairCounts, pairs: u64) -> PairCounts {
    let factor = pairs as f64 / counts.count() as f64;
    let part = |of: u64| (of as f64 * factor).round() as u64;
    PairCounts {
        both: part(counts.both),
        only_a: part(counts.only_a),
        only_b: part(counts.only_b),
        neither: part(counts.neither),
    }
}

impl fmt::Display for GateResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = self.margin * 100.0;
        match self.verdict {
            Verdict::Passed => {
                write!(f, "passed: B has not lost {points} points or more")?;
                self.excluded_loss.map_or(Ok(()), |loss| {
                    let loss = loss * 100.0;
                    write!(f, " (2.5 %: a loss of {loss:.2} points is excluded)")
                })
            }
            Verdict::Regression => write!(
                f,
                "regression: B has solved significantly fewer episodes, and a loss of {points} \
                 points or more is not excluded"
            ),
            // A gate says neither of the last two, which compare with a rate.
            Verdict::Undecided | Verdict::Same | Verdict::Different => {
                write!(
                    f,
                    "undecided: a loss of {points} points or more is neither shown nor excluded"
                )?;
                self.pairs_needed
                    .map_or(Ok(()), |pairs| write!(f, "; about {pairs} pairs would do"))
            }
        }
    }
}

#[cfg(test)]
mod tests;
