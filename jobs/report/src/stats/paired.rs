//! Statistics of two policies on the same episodes: pairs of outcomes tell more than two rates.
//!
//! ```text
//!                B solved   B not
//! A solved         both     only_a      difference of the rates = (only_b − only_a) / all
//! A not            only_b   neither     McNemar: could only_a and only_b be coin flips?
//! ```

use serde::{Deserialize, Serialize};

use crate::stats::tails::{student975, tail};
use crate::stats::{Solved, mean};

/// Number of discordant pairs up to which the test is exact.
const EXACT: u64 = 1000;

/// Counts of pairs by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PairCounts {
    /// Pairs that A and B solved.
    pub both: u64,
    /// Pairs that only A solved.
    pub only_a: u64,
    /// Pairs that only B solved.
    pub only_b: u64,
    /// Pairs that neither solved.
    pub neither: u64,
}

/// McNemar's test of the hypothesis that A and B solve equally many.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct McNemar {
    /// Two-sided p-value.
    pub p: f64,
    /// Whether `p` is that of the binomial distribution. For more than 1000 discordant pairs it is
    /// that of chi-squared with a continuity correction.
    pub exact: bool,
}

/// The mean difference over pairs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeanDifference {
    /// Number of pairs.
    pub pairs: u64,
    /// Mean of the differences.
    pub mean: f64,
    /// Its interval at 95 %, by Student's t-distribution; `None` for a single pair.
    pub interval95: Option<[f64; 2]>,
}

impl PairCounts {
    /// Counts one more pair.
    pub fn add(&mut self, a: bool, b: bool) {
        *match (a, b) {
            (true, true) => &mut self.both,
            (true, false) => &mut self.only_a,
            (false, true) => &mut self.only_b,
            (false, false) => &mut self.neither,
        } += 1;
    }

    /// Returns the number of pairs.
    pub fn count(&self) -> u64 {
        self.both + self.only_a + self.only_b + self.neither
    }

    /// Returns the number of pairs that A solved, and that B solved.
    pub fn solved(&self) -> [u64; 2] {
        [self.both + self.only_a, self.both + self.only_b]
    }

    /// Returns the rate of B minus the rate of A; `None` without pairs.
    pub fn difference(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| (self.only_b as f64 - self.only_a as f64) / count as f64)
    }

    /// Returns the interval of the difference at 95 %: method 10 of Newcombe, *Improved confidence
    /// intervals for the difference between binomial proportions based on paired data*, Statistics
    /// in Medicine 17 (1998), 2635–2650. It combines Wilson's intervals of both rates by squares,
    /// with the correlation of the pairs (with its continuity correction).
    pub fn interval95(&self) -> Option<[f64; 2]> {
        let [a, b] = self
            .solved()
            .map(|solved| Solved::new(solved, self.count()));
        let intervals = [a.wilson95()?, b.wilson95()?];
        let rates = [a.rate()?, b.rate()?];
        Some(square_and_add(
            rates,
            intervals,
            self.difference()?,
            self.phi(),
        ))
    }

    /// Returns the correlation of the pairs, 0 if one of the outcomes never changes.
    fn phi(&self) -> f64 {
        let of = |count: u64| count as f64;
        let margins = [
            of(self.both) + of(self.only_a),
            of(self.only_b) + of(self.neither),
            of(self.both) + of(self.only_b),
            of(self.only_a) + of(self.neither),
        ];
        let product: f64 = margins.iter().product();
        let cross = of(self.both) * of(self.neither) - of(self.only_a) * of(self.only_b);
        correlation(cross, product.sqrt(), of(self.count()))
    }

    /// Returns McNemar's test; `None` if no pair is discordant.
    pub fn mcnemar(&self) -> Option<McNemar> {
        let (b, c) = (self.only_a, self.only_b);
        let exact = b + c <= EXACT;
        let p = || match exact {
            true => coin(b.min(c), b + c),
            false => continuity(b, c),
        };
        (b + c > 0).then(|| McNemar { p: p(), exact })
    }
}

/// Returns the correlation of `count` pairs from their cross product and spread, both times `count`
/// squared, with Newcombe's continuity correction; 0 if one of the outcomes never changes.
pub(super) fn correlation(cross: f64, spread: f64, count: f64) -> f64 {
    let corrected = if cross > 0.0 {
        (cross - count / 2.0).max(0.0)
    } else {
        cross
    };
    if spread > 1e-9 {
        (corrected / spread).clamp(-1.0, 1.0)
    } else {
        0.0
    }
}

/// Combines the intervals of the rates of A and B into that of their difference, B − A; `phi` is the
/// correlation of the two.
pub(super) fn square_and_add(
    [rate_a, rate_b]: [f64; 2],
    [[low_a, high_a], [low_b, high_b]]: [[f64; 2]; 2],
    difference: f64,
    phi: f64,
) -> [f64; 2] {
    let joined = |x: f64, y: f64| (x * x - 2.0 * phi * x * y + y * y).max(0.0).sqrt();
    let low = difference - joined(rate_b - low_b, high_a - rate_a);
    let high = difference + joined(rate_a - low_a, high_b - rate_b);
    [low.max(-1.0), high.min(1.0)]
}

/// Returns twice the probability of at most `k` heads in `n` throws of a fair coin, at most 1; `k`
/// is at most half of `n`.
fn coin(k: u64, n: u64) -> f64 {
    // That many heads or fewer are as likely as that many tails or fewer.
    (2.0 * tail(n - k, n, 0.5)).min(1.0)
}

/// Returns the p-value of chi-squared with one degree of freedom and a continuity correction of 1
/// (Edwards 1948).
fn continuity(b: u64, c: u64) -> f64 {
    let distance = (b.abs_diff(c) as f64 - 1.0).max(0.0);
    libm::erfc((distance * distance / (b + c) as f64 / 2.0).sqrt())
}

/// Returns the mean of differences and its interval; `None` without values.
pub fn mean_difference(differences: &[f64]) -> Option<MeanDifference> {
    let mean_ = mean(differences.iter().copied())?;
    let pairs = differences.len() as u64;
    let squares: f64 = differences
        .iter()
        .map(|difference| (difference - mean_).powi(2))
        .sum();
    let interval95 = (pairs > 1).then(|| {
        let half = student975(pairs - 1) * (squares / (pairs - 1) as f64 / pairs as f64).sqrt();
        [mean_ - half, mean_ + half]
    });
    Some(MeanDifference {
        pairs,
        mean: mean_,
        interval95,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::simulated::pairs;
    use proptest::prelude::*;

    #[test]
    fn the_exact_test_agrees_with_statsmodels() {
        // statsmodels 0.15.0, mcnemar([[10, b], [c, 10]], exact=True)
        for (b, c, wanted) in [
            (1, 0, 1.0),
            (5, 1, 0.218_75),
            (10, 2, 0.038_574_218_75),
            (8, 8, 1.0),
            (25, 10, 0.016_673_847_800_120_715),
            (59, 32, 0.006_105_521_074_524_77),
            (121, 86, 0.017_905_614_973_719_838),
            (300, 200, 8.940_066_542_253_288e-6),
            (0, 30, 1.862_645_149_230_957e-9),
        ] {
            let found = pairs([10, b, c, 10]).mcnemar().unwrap();
            let is_near = (found.p / wanted - 1.0).abs() < 1e-10;
            assert!(found.exact && is_near, "{b} {c}: {}", found.p);
        }
        assert_eq!(pairs([10, 0, 0, 10]).mcnemar(), None);
    }

    #[test]
    fn the_corrected_test_agrees_with_statsmodels() {
        // statsmodels 0.15.0, mcnemar(…, exact=False, correction=True)
        for (b, c, wanted) in [
            (5, 1, 0.220_671_361_919_843_24),
            (25, 10, 0.017_960_477_526_078_79),
            (121, 86, 0.018_119_680_460_099_655),
            (300, 200, 9.536_931_399_898_51e-6),
            (1000, 900, 0.023_133_919_510_755_163),
            (0, 30, 1.192_436_685_441_679_7e-7),
        ] {
            let found = continuity(b, c);
            assert!((found / wanted - 1.0).abs() < 1e-10, "{b} {c}: {found}");
        }
        let large = pairs([0, 1000, 900, 0]).mcnemar().unwrap();
        assert!(!large.exact && (large.p - continuity(1000, 900)).abs() < f64::EPSILON);
        // The exact value would be 0.023108845…
        assert!((coin(900, 1900) / 0.023_108_845_108_901_193 - 1.0).abs() < 1e-10);
    }

    #[test]
    fn newcombes_interval_agrees_with_published_ones() {
        let close = |table: [u64; 4], wanted: [f64; 2], digits: f64| {
            // As in textbooks: the difference of the first row and the first column.
            let [both, only_b, only_a, neither] = table;
            let found = pairs([both, only_a, only_b, neither]).interval95().unwrap();
            let near = |a: f64, b: f64| (a - b).abs() < digits;
            assert!(near(found[0], wanted[0]), "{table:?}: {found:?}");
            assert!(near(found[1], wanted[1]), "{table:?}: {found:?}");
        };
        // Altman, Machin, Bryant, Gardner, Statistics with Confidence (2000), table 6.2
        close([14, 5, 0, 22], [0.011, 0.226], 5e-4);
        // R, contingencytables 3.1.0, Newcombe_square_and_add_CI_paired_2x2
        close([59, 6, 16, 80], [-0.1186, -0.0046], 5e-5);
        // The formulas in Python with statsmodels 0.15.0, proportion_confint(method="wilson")
        close(
            [14, 5, 0, 22],
            [0.011_483_241_383_033_2, 0.226_492_684_351_211_2],
            1e-12,
        );
        close(
            [1, 1, 7, 12],
            [-0.506_920_226_686_141, -0.025_559_124_164_859_8],
            1e-12,
        );
        close(
            [10, 0, 0, 0],
            [-0.277_532_799_862_889_4, 0.277_532_799_862_889_4],
            1e-12,
        );
        close([0, 10, 0, 0], [0.607_509_350_430_524_1, 1.0], 1e-12);
        close(
            [0, 5, 5, 0],
            [-0.526_813_818_974_872_1, 0.526_813_818_974_872_1],
            1e-12,
        );
        close(
            [250, 40, 25, 185],
            [-0.001_705_585_900_951_9, 0.061_557_059_143_318_5],
            1e-12,
        );
        assert_eq!(pairs([0; 4]).interval95(), None);
    }

    #[test]
    fn a_mean_difference_has_students_interval() {
        let found = mean_difference(&[1.0, 2.5, -0.5, 3.25, 0.0]).unwrap();
        // statsmodels 0.15.0, DescrStatsW(…).tconfint_mean()
        let [low, high] = found.interval95.unwrap();
        assert!((low + 0.737_632_210_411_575).abs() < 1e-8);
        assert!((high - 3.237_632_210_411_575).abs() < 1e-8);
        assert_eq!((found.pairs, found.mean), (5, 1.25));
        assert_eq!(mean_difference(&[2.0]).unwrap().interval95, None);
        assert_eq!(mean_difference(&[]), None);
    }

    proptest! {
        #[test]
        fn exchanging_a_and_b_changes_the_sign_alone(table in prop::array::uniform4(0u64..400)) {
            let [both, only_a, only_b, neither] = table;
            let (there, back) = (pairs(table), pairs([both, only_b, only_a, neither]));
            prop_assert_eq!(there.mcnemar(), back.mcnemar());
            if let (Some([low, high]), Some([low_back, high_back])) = (there.interval95(), back.interval95()) {
                prop_assert!((low + high_back).abs() < 1e-12 && (high + low_back).abs() < 1e-12);
                let difference = there.difference().unwrap();
                prop_assert!(-1.0 <= low && low <= difference && difference <= high && high <= 1.0);
            }
        }

        #[test]
        fn a_p_value_is_a_probability_that_falls_as_the_sides_part(b in 0u64..600, c in 0u64..400) {
            let p = |b, c| pairs([0, b, c, 0]).mcnemar().map_or(1.0, |found| found.p);
            prop_assert!((0.0..=1.0).contains(&p(b, c)));
            if b > c && b + c < 990 {
                prop_assert!(p(b + 2, c) <= p(b + 1, c + 1) + 1e-12, "with as many pairs");
            }
        }
    }
}
