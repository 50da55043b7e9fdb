//! How often the gate is wrong: exactly, over all tables of up to 100 pairs, at every rate.
//!
//! What the gate says depends on the numbers of pairs, of those that only A solved and of those that
//! only B solved. So a policy that loses the margin has one free probability: that only B solves.
//! The largest error over it is the error of the gate.

use super::*;

/// The largest number of pairs.
const MOST: usize = 100;

/// Number of steps of the free probability.
const STEPS: u32 = 40;

const MARGINS: [f64; 10] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 0.99];

/// The largest probability of one verdict, and where it is.
#[derive(Clone, Copy, Default)]
struct Worst {
    error: f64,
    count: usize,
    only_b: f64,
}

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

/// Returns the largest probability of the tables if A solves `loss` more than B.
fn worst(loss: f64, is_wrong: impl Fn(PairCounts) -> bool) -> Worst {
    let factorials = factorials();
    let most_b = (1.0 - loss) / 2.0;
    // Closer together at both ends, where the probability changes fastest.
    let shares = (0..=STEPS).map(|step| {
        let angle = f64::from(step) / f64::from(STEPS) * std::f64::consts::PI;
        most_b * (1.0 - angle.cos()) / 2.0
    });
    let points: Vec<_> = shares
        .map(|b| {
            (
                b,
                [b + loss, b, (1.0 - loss - 2.0 * b).max(0.0)].map(|p| terms(p, &factorials)),
            )
        })
        .collect();
    let mut worst = Worst::default();
    for count in 1..=MOST {
        let tables = tables(count, &is_wrong);
        for (only_b, [a, b, equal]) in &points {
            let log =
                |[i, j]: &[usize; 2]| a[*i] + b[*j] + equal[count - i - j] + factorials[count];
            let error = tables.iter().map(|table| log(table).exp()).sum();
            if error > worst.error {
                worst = Worst {
                    error,
                    count,
                    only_b: *only_b,
                };
            }
        }
    }
    worst
}

#[test]
fn a_policy_that_loses_the_margin_passes_in_at_most_a_fortieth_of_all_comparisons() {
    println!("margin  passes at most  pairs  only B solves");
    let mut is_kept = true;
    for margin in MARGINS {
        let gate = Gate { margin };
        let found = worst(margin, |counts| {
            gate.decided(counts) == Some(GateVerdict::Passed)
        });
        let Worst {
            error,
            count,
            only_b,
        } = found;
        println!(
            "{:5} %  {:12.2} %  {count:5}  {:10.1} %",
            margin * 100.0,
            error * 100.0,
            only_b * 100.0
        );
        is_kept &= error <= 0.025;
    }
    assert!(is_kept, "see the table");
}

#[test]
fn an_equal_policy_is_called_a_regression_in_at_most_a_fortieth_of_all_comparisons() {
    let gate = Gate { margin: 0.05 };
    let found = worst(0.0, |counts| {
        gate.decided(counts) == Some(GateVerdict::Regression)
    });
    assert!(found.error <= 0.025, "{}", found.error);
}
