//! A test of non-inferiority for pairs: has B lost less than a margin against A?
//!
//! It is the score test of Tango, *Equivalence test and confidence interval for the difference in
//! proportions for the paired-sample design*, Statistics in Medicine 17 (1998), 891–908, with a
//! correction. If B loses exactly the margin `Δ`, the number
//!
//! ```text
//! only_b − only_a + n·Δ       has mean 0 and variance n·(d − Δ²)
//! ```
//! where `d` is the probability that a pair differs, which is estimated under that hypothesis. The
//! number takes whole steps and its distribution is skewed, so the normal distribution alone lets a
//! loss of the margin pass in up to 6 %. It therefore has to reach `1.96·√(n·(d − Δ²)) + (1 + Δ)·√d`:
//! the correction is one pair for the steps and `Δ` for the skewness where nearly all pairs differ,
//! and less where few do. That this keeps the error at 2.5 % is not derived but enumerated, see
//! `compare/gate/tests.rs`.

use crate::stats::Z95;
use crate::stats::paired::PairCounts;

impl PairCounts {
    /// Returns whether a loss of `margin` or more (B − A ≤ −margin) is excluded at 2.5 %. `margin` is
    /// above 0 and below 1.
    pub fn excludes_loss(&self, margin: f64) -> bool {
        let count = self.count() as f64;
        let differing = self.differing_at(margin);
        let distance = self.only_b as f64 - self.only_a as f64 + count * margin;
        let deviation = (count * (differing - margin * margin)).max(0.0).sqrt();
        distance > 0.0 && distance >= Z95 * deviation + (1.0 + margin) * differing.sqrt()
    }

    /// Returns the smallest loss that is excluded, to a hundredth of a percentage point; `None` if
    /// no loss is excluded.
    pub fn excluded_loss(&self) -> Option<f64> {
        const STEPS: u32 = 10_000;
        let margin = |step: u32| f64::from(step) / f64::from(STEPS);
        let steps: Vec<u32> = (1..STEPS).collect();
        let first = steps.partition_point(|step| !self.excludes_loss(margin(*step)));
        steps.get(first).map(|step| margin(*step))
    }

    /// Returns the most likely probability that a pair differs if B loses exactly the margin.
    fn differing_at(&self, margin: f64) -> f64 {
        let [count, only_a, only_b] = [self.count(), self.only_a, self.only_b].map(|n| n as f64);
        // The probability that only B solves a pair is the positive root of a·q² + b·q + c.
        let a = 2.0 * count;
        let b = margin * (2.0 * count - only_a + only_b) - only_a - only_b;
        let c = -only_b * margin * (1.0 - margin);
        let root = (b * b - 4.0 * a * c).max(0.0).sqrt();
        let only_b = if a > 0.0 { (root - b) / (2.0 * a) } else { 0.0 };
        2.0 * only_b + margin
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::simulated::pairs;
    use proptest::prelude::*;

    #[test]
    fn the_estimate_under_the_margin_is_the_most_likely_one() {
        for (table, margin) in [
            ([20, 7, 3, 10], 0.05),
            ([5, 0, 9, 6], 0.2),
            ([1, 12, 1, 6], 0.1),
        ] {
            let counts = pairs(table);
            let likelihood = |differing: f64| {
                let only_b = (differing - margin) / 2.0;
                counts.only_a as f64 * (only_b + margin).ln()
                    + counts.only_b as f64 * only_b.ln()
                    + (counts.both + counts.neither) as f64 * (1.0 - differing).ln()
            };
            let found = counts.differing_at(margin);
            for other in [found - 0.001, found + 0.001] {
                let is_less = likelihood(other).is_nan() || likelihood(other) < likelihood(found);
                assert!(is_less, "{table:?} {margin}: {found}");
            }
        }
    }

    #[test]
    fn pairs_that_never_differ_exclude_a_loss_once_they_are_many() {
        // With 5 % lost, 72 pairs without a loss have a probability of 2.5 %.
        assert!(!pairs([40, 0, 0, 31]).excludes_loss(0.05));
        assert!(pairs([50, 0, 0, 40]).excludes_loss(0.05));
        assert_eq!(pairs([0; 4]).excluded_loss(), None);
    }

    proptest! {
        #[test]
        fn a_larger_loss_is_excluded_more_easily(table in prop::array::uniform4(0u64..300), margin in 0.001_f64..0.98) {
            let counts = pairs(table);
            if counts.excludes_loss(margin) {
                prop_assert!(counts.excludes_loss(margin + 0.01));
                prop_assert!(counts.excluded_loss().unwrap() <= margin + 1e-4);
            }
        }

        #[test]
        fn pairs_that_do_not_differ_count_whatever_they_are(
            table in prop::array::uniform4(0u64..300), margin in 0.001_f64..0.999
        ) {
            let [both, only_a, only_b, neither] = table;
            let other = pairs([0, only_a, only_b, both + neither]);
            prop_assert_eq!(pairs(table).excludes_loss(margin), other.excludes_loss(margin));
        }
    }
}
