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

/// What a gate says about a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GateVerdict {
    /// A loss of the margin is excluded.
    Passed,
    /// B has solved significantly fewer episodes, and the loss may be larger than the margin.
    Regression,
    /// The episodes are too few to tell.
    Undecided,
}

/// A gate and what it says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GateResult {
    /// The margin, as a difference of rates.
    pub margin: f64,
    /// What it says.
    pub verdict: GateVerdict,
    /// The smallest loss that is excluded at 2.5 %, as a difference of rates; `null` if none is.
    pub excluded_loss: Option<f64>,
    /// If it is undecided, the number of pairs that would do if they turned out as those that there
    /// are; `None` if there are no pairs, or if too many would be needed.
    pub pairs_needed: Option<u64>,
}

impl Gate {
    /// Judges the pairs of a comparison.
    pub fn judge(self, counts: PairCounts) -> GateResult {
        let verdict = self.decided(counts).unwrap_or(GateVerdict::Undecided);
        let is_undecided = verdict == GateVerdict::Undecided;
        GateResult {
            margin: self.margin,
            verdict,
            excluded_loss: counts.excluded_loss(),
            pairs_needed: is_undecided.then(|| self.pairs_needed(counts)).flatten(),
        }
    }

    /// Returns the verdict if there are enough pairs for one.
    fn decided(self, counts: PairCounts) -> Option<GateVerdict> {
        if counts.excludes_loss(self.margin) {
            return Some(GateVerdict::Passed);
        }
        let is_lost = counts.only_a > counts.only_b;
        let is_significant = counts.mcnemar().is_some_and(|test| test.p < LEVEL);
        (is_lost && is_significant).then_some(GateVerdict::Regression)
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
            GateVerdict::Passed => {
                write!(f, "passed: B has not lost {points} points or more")?;
                self.excluded_loss.map_or(Ok(()), |loss| {
                    let loss = loss * 100.0;
                    write!(f, " (2.5 %: a loss of {loss:.2} points is excluded)")
                })
            }
            GateVerdict::Regression => write!(
                f,
                "regression: B has solved significantly fewer episodes, and a loss of {points} \
                 points or more is not excluded"
            ),
            GateVerdict::Undecided => {
                write!(
                    f,
                    "undecided: a loss of {points} points or more is neither shown nor excluded"
                )?;
                match self.pairs_needed {
                    Some(pairs) => write!(f, "; about {pairs} pairs would do"),
                    None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod enumeration;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulated::{Numbers, pairs};
    use proptest::prelude::*;

    const FIVE: Gate = Gate { margin: 0.05 };

    #[test]
    fn a_significant_loss_is_a_regression_and_few_pairs_decide_nothing() {
        for (counts, wanted) in [
            ([50, 30, 10, 10], GateVerdict::Regression),
            ([0, 6, 0, 0], GateVerdict::Regression),
            ([900, 10, 10, 80], GateVerdict::Passed),
            ([50, 5, 30, 15], GateVerdict::Passed),
            ([9, 0, 0, 1], GateVerdict::Undecided),
            ([0; 4], GateVerdict::Undecided),
        ] {
            let verdict = FIVE.judge(pairs(counts)).verdict;
            assert_eq!(verdict, wanted, "{counts:?}");
        }
    }

    #[test]
    fn a_significant_loss_within_the_margin_passes() {
        let counts = pairs([9000, 200, 100, 700]);
        assert!(counts.mcnemar().unwrap().p < 0.05);
        assert_eq!(FIVE.judge(counts).verdict, GateVerdict::Passed);
    }

    #[test]
    fn the_proposed_number_of_pairs_decides() {
        assert_eq!(FIVE.judge(pairs([0; 4])).pairs_needed, None);
        for counts in [[9, 0, 0, 1], [30, 5, 4, 11], [30, 6, 1, 3]] {
            let needed = FIVE.judge(pairs(counts)).pairs_needed.unwrap();
            let count = pairs(counts).count();
            assert!(needed > count, "{counts:?}: {needed}");
            let more = FIVE.decided(scaled(pairs(counts), needed));
            assert!(more.is_some(), "{counts:?}: {needed}");
        }
    }

    /// Returns the shares of regressions and passes in 10 000 comparisons of `count` pairs, in
    /// which only A solves with one probability and only B with another one.
    fn shares(count: u64, only_a: f64, only_b: f64) -> [f64; 2] {
        const COMPARISONS: u32 = 10_000;
        let mut numbers = Numbers(7);
        let mut found = [0_u32; 2];
        for _ in 0..COMPARISONS {
            let mut counts = PairCounts::default();
            for _ in 0..count {
                let number = numbers.next();
                let discordant = only_a + only_b;
                match number {
                    number if number < only_a => counts.add(true, false),
                    number if number < discordant => counts.add(false, true),
                    number if number < discordant + (1.0 - discordant) * 0.7 => {
                        counts.add(true, true);
                    }
                    _ => counts.add(false, false),
                }
            }
            match FIVE.judge(counts).verdict {
                GateVerdict::Regression => found[0] += 1,
                GateVerdict::Passed => found[1] += 1,
                GateVerdict::Undecided => {}
            }
        }
        found.map(|count| f64::from(count) / f64::from(COMPARISONS))
    }

    /// The last column of the table of the sequential test in docs/tools.md.
    #[test]
    fn nine_of_ten_comparisons_decide_with_as_many_pairs_as_the_guide_says() {
        for (count, discordant) in [(83, 0.0), (274, 0.025), (464, 0.05), (870, 0.1)] {
            let [_, passes] = shares(count, discordant, discordant);
            assert!(
                (0.86..0.97).contains(&passes) || discordant == 0.0 && passes == 1.0,
                "{count}: {passes}"
            );
        }
        for (count, only_a, only_b) in [
            (214, 0.15, 0.05),
            (78, 0.25, 0.05),
            (16, 0.5, 0.0),
            (8, 0.9, 0.0),
        ] {
            let [regressions, _] = shares(count, only_a, only_b);
            assert!(
                (0.86..0.97).contains(&regressions),
                "{count}: {regressions}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_counts_are_judged(counts in proptest::array::uniform4(0_u64..1_000_000), margin in 0.001_f64..1.0) {
            let result = Gate { margin }.judge(pairs(counts));
            if let Some(needed) = result.pairs_needed {
                prop_assert!(needed > 0 && needed <= MOST_PAIRS * 2);
            }
            prop_assert!(!result.to_string().is_empty());
        }
    }
}
