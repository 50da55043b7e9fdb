//! Tests of the gate: what it says of some tables, and how often it is wrong. The latter exactly,
//! over all tables of up to 100 pairs, at every rate.
//!
//! What the gate says depends on the numbers of pairs, of those that only A solved and of those that
//! only B solved. So a policy that loses the margin has one free probability: that only B solves.
//! The largest error over it is the error of the gate.

use super::*;
use crate::tests::simulated::{Numbers, pairs, share};
use proptest::prelude::*;

const FIVE: Gate = Gate { margin: 0.05 };

#[test]
fn a_significant_loss_is_a_regression_and_few_pairs_decide_nothing() {
    for (counts, wanted) in [
        ([50, 30, 10, 10], Verdict::Regression),
        ([0, 6, 0, 0], Verdict::Regression),
        ([900, 10, 10, 80], Verdict::Passed),
        ([50, 5, 30, 15], Verdict::Passed),
        ([9, 0, 0, 1], Verdict::Undecided),
        ([0; 4], Verdict::Undecided),
    ] {
        let verdict = FIVE.judge(pairs(counts)).verdict;
        assert_eq!(verdict, wanted, "{counts:?}");
    }
}

#[test]
fn a_significant_loss_within_the_margin_passes() {
    let counts = pairs([9000, 200, 100, 700]);
    assert!(counts.mcnemar().unwrap().p < 0.05);
    assert_eq!(FIVE.judge(counts).verdict, Verdict::Passed);
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

/// Returns how often the gate says this of 10 000 comparisons of `count` pairs, in which only A
/// solves with one probability and only B with another one.
fn share_of(verdict: Verdict, count: u64, only_a: f64, only_b: f64) -> f64 {
    let discordant = only_a + only_b;
    share(10_000, Numbers(7), |numbers| {
        let mut counts = PairCounts::default();
        for _ in 0..count {
            let (a, b) = match numbers.next() {
                number if number < only_a => (true, false),
                number if number < discordant => (false, true),
                number => {
                    let is_easy = number < discordant + (1.0 - discordant) * 0.7;
                    (is_easy, is_easy)
                }
            };
            counts.add(a, b);
        }
        FIVE.judge(counts).verdict == verdict
    })
}

/// The last column of the table of the sequential test in docs/tools.md.
#[test]
fn nine_of_ten_comparisons_decide_with_as_many_pairs_as_the_guide_says() {
    for (count, discordant) in [(83, 0.0), (274, 0.025), (464, 0.05), (870, 0.1)] {
        let passes = share_of(Verdict::Passed, count, discordant, discordant);
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
        let regressions = share_of(Verdict::Regression, count, only_a, only_b);
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

/// The largest number of pairs.
const MOST: usize = 100;

/// Number of steps of the free probability.
const STEPS: u32 = 40;

const MARGINS: [f64; 10] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 0.99];

/// Logarithms of factorials up to [`MOST`].
fn factorials() -> Vec<f64> {
    let mut of = vec![0.0];
    for number in 1..=MOST {
        of.push(of[number - 1] + (number as f64).ln());
    }
    of
}

/// Returns, for each number of successes, the logarithm of `p^k / k!`.
fn terms(p: f64, factorials: &[f64]) -> Vec<f64> {
    let power = |k: usize| if k == 0 { 0.0 } else { k as f64 * p.ln() };
    (0..factorials.len())
        .map(|k| power(k) - factorials[k])
        .collect()
}

/// Returns all tables of `count` pairs of which `is_wrong` is true, as `only_a` and `only_b`.
fn tables(count: usize, is_wrong: impl Fn(PairCounts) -> bool) -> Vec<[usize; 2]> {
    let mut found = Vec::new();
    for only_a in 0..=count {
        for only_b in 0..=count - only_a {
            let equal = count - only_a - only_b;
            let counts = PairCounts {
                both: equal as u64 / 2,
                only_a: only_a as u64,
                only_b: only_b as u64,
                neither: equal.div_ceil(2) as u64,
            };
            if is_wrong(counts) {
                found.push([only_a, only_b]);
            }
        }
    }
    found
}

/// Returns the largest probability of a verdict if A solves `loss` more than B.
fn worst(gate: Gate, loss: f64, verdict: Verdict) -> f64 {
    let factorials = factorials();
    let most_b = (1.0 - loss) / 2.0;
    // Closer together at both ends, where the probability changes fastest.
    let shares = (0..=STEPS).map(|step| {
        let angle = f64::from(step) / f64::from(STEPS) * std::f64::consts::PI;
        most_b * (1.0 - angle.cos()) / 2.0
    });
    let points: Vec<_> = shares
        .map(|b| [b + loss, b, (1.0 - loss - 2.0 * b).max(0.0)].map(|p| terms(p, &factorials)))
        .collect();
    let mut worst = 0.0_f64;
    for count in 1..=MOST {
        let tables = tables(count, |counts| gate.decided(counts) == Some(verdict));
        for [a, b, equal] in &points {
            let log =
                |[i, j]: &[usize; 2]| a[*i] + b[*j] + equal[count - i - j] + factorials[count];
            worst = worst.max(tables.iter().map(|table| log(table).exp()).sum());
        }
    }
    worst
}

#[test]
fn a_policy_that_loses_the_margin_passes_in_at_most_a_fortieth_of_all_comparisons() {
    for margin in MARGINS {
        let found = worst(Gate { margin }, margin, Verdict::Passed);
        assert!(found <= 0.025, "{margin}: {found}");
    }
}

#[test]
fn an_equal_policy_is_called_a_regression_in_at_most_a_fortieth_of_all_comparisons() {
    let found = worst(FIVE, 0.0, Verdict::Regression);
    assert!(found <= 0.025, "{found}");
}
