use super::*;
use crate::tests::simulated::{Numbers, share};
use proptest::prelude::*;

impl Numbers {
    /// Returns a difference: −1 with the first probability, 1 with the second.
    fn difference(&mut self, [lost, won]: [f64; 2]) -> i32 {
        match self.next() {
            number if number < lost => -1,
            number if number < lost + won => 1,
            _ => 0,
        }
    }
}

fn sums(counts: [u64; 3]) -> PairedSums {
    let mut sums = PairedSums::new(1);
    for (difference, count) in (-1..).zip(counts) {
        (0..count).for_each(|_| sums.add(1, difference));
    }
    sums
}

#[test]
fn a_capital_is_the_mean_over_the_bets_of_the_products() {
    let sums = sums([2, 3, 4]);
    let product = |bet: f64| {
        (1.0 + bet * (-1.0 + 0.1)).powi(2) * (1.0 + bet * 0.1).powi(3) * (1.0 + bet * 1.1).powi(4)
    };
    let mean = bets().map(|share| product(share / 0.9)).sum::<f64>() / f64::from(BETS);
    assert!((sums.capital(-0.1, 1) - mean.ln()).abs() < 1e-12);
    let capital = PairedSums::new(1).capital(0.3, 1);
    assert_eq!(capital, 0.0, "nothing won yet");
}

#[test]
fn nobody_bets_all_that_there_is() {
    let all: Vec<f64> = bets().collect();
    assert_eq!(all.len(), 16);
    assert!((all[0] - LARGEST).abs() < 1e-12 && (all[15] - SMALLEST).abs() < 1e-12);
    assert!(sums([1000, 0, 0]).capital(-0.9, 1).is_finite());
}

#[test]
fn without_differences_every_mean_is_possible() {
    let found = PairedSums::new(1).interval(0.05).map(f64::round);
    assert_eq!(found, [-1.0, 1.0]);
}

#[test]
fn many_equal_outcomes_narrow_the_interval_about_zero() {
    let [low, high] = sums([0, 120, 0]).interval(0.05);
    assert!(low < -0.049 && low > -0.052, "{low}");
    assert!((low + high).abs() < 1e-9);
    assert!(sums([0, 125, 0]).is_above(-0.05, 0.025));
}

// Errors at any of the looks, of which there is one after each round. Ville's inequality bounds them
// by the level; 0.003 is two standard errors of 10 000 runs.

/// Asserts that `rejects` says so at the end of any round in at most this share of 10 000 runs. A
/// round has one difference per job, with the job's probabilities.
#[track_caller]
fn assert_rare(most: f64, jobs: &[[f64; 2]], rounds: u32, rejects: impl Fn(&PairedSums) -> bool) {
    let found = share(10_000, Numbers(11), |numbers| {
        let mut sums = PairedSums::new(1);
        (0..rounds).any(|_| {
            jobs.iter()
                .for_each(|job| sums.add(1, numbers.difference(*job)));
            rejects(&sums)
        })
    });
    assert!(found <= most, "{jobs:?}: {found}");
}

#[test]
fn an_equal_policy_is_rarely_called_different() {
    let below = |sums: &PairedSums| sums.is_below(0.0, 0.025);
    let either = |sums: &PairedSums| below(sums) || sums.is_above(0.0, 0.025);
    for discordant in [0.02, 0.1, 0.25] {
        let jobs = [[discordant, discordant]; 4];
        assert_rare(0.025 + 0.003, &jobs, 100, below);
        assert_rare(0.05 + 0.004, &jobs, 50, either);
    }
    // One job has gained what another has lost.
    assert_rare(0.025 + 0.003, &[[0.6, 0.0], [0.0, 0.6]], 100, below);
}

#[test]
fn a_loss_of_exactly_the_margin_rarely_passes_and_is_rarely_called_the_same() {
    let passes = |sums: &PairedSums| sums.is_above(-0.05, 0.025);
    for won in [0.0, 0.05, 0.2] {
        let jobs = [[won + 0.05, won]; 4];
        assert_rare(0.025 + 0.003, &jobs, 100, passes);
    }
    // The mean is the margin although no job's is.
    let jobs = [[0.7, 0.0], [0.0, 0.5], [0.0, 0.0], [0.05, 0.05]];
    let mean: f64 = jobs.iter().map(|[lost, won]| won - lost).sum::<f64>() / 4.0;
    assert!((mean + 0.05).abs() < 1e-12);
    assert_rare(0.025 + 0.003, &jobs, 100, passes);
    let same = |sums: &PairedSums| sums.is_above(-0.05, 0.05) && sums.is_below(0.05, 0.05);
    assert_rare(0.05 + 0.004, &[[0.05, 0.1]; 4], 100, same);
}

/// Four jobs begin in the same states and always end alike. As separate bets they would reject far
/// too often; as one cluster they do not.
#[test]
fn jobs_of_one_cluster_count_as_one_bet() {
    let rejected = |largest: u32, bets: u32| {
        share(2_000, Numbers(5), |numbers| {
            let mut sums = PairedSums::new(largest);
            let pairs = 4 / bets;
            (0..60).any(|_| {
                let sum = numbers.difference([0.3, 0.3]) * pairs as i32;
                (0..bets).for_each(|_| sums.add(pairs, sum));
                sums.is_below(0.0, 0.025)
            })
        })
    };
    let [together, apart] = [rejected(4, 1), rejected(1, 4)];
    assert!(together <= 0.025 + 0.007, "{together}");
    assert!(apart > 0.06, "{apart}");
}

/// Asserts that `rejects` holds after `wanted` pairs on average, within five percent: the mean of
/// 2000 runs, with a look after each pair.
#[track_caller]
fn assert_pairs(differences: [f64; 2], wanted: f64, rejects: impl Fn(&PairedSums) -> bool) {
    let mut pairs = 0_u32;
    share(2_000, Numbers(3), |numbers| {
        let mut sums = PairedSums::new(1);
        (0..5_000).any(|_| {
            sums.add(1, numbers.difference(differences));
            pairs += 1;
            rejects(&sums)
        })
    });
    let found = f64::from(pairs) / 2_000.0;
    assert!(
        (found / wanted - 1.0).abs() < 0.05,
        "{differences:?}: {found}"
    );
}

// The table in docs/tools.md; its last column is tested in `compare::gate`.

#[test]
fn equal_policies_pass_after_as_many_pairs_as_the_guide_says() {
    for (discordant, wanted) in [(0.0, 123.0), (0.025, 266.0), (0.05, 426.0), (0.1, 787.0)] {
        assert_pairs([discordant; 2], wanted, |sums| sums.is_above(-0.05, 0.025));
    }
}

#[test]
fn losses_are_found_after_as_many_pairs_as_the_guide_says() {
    for (differences, wanted) in [
        ([0.15, 0.05], 197.0),
        ([0.25, 0.05], 73.0),
        ([0.5, 0.0], 18.0),
        ([0.9, 0.0], 10.0),
    ] {
        assert_pairs(differences, wanted, |sums| sums.is_below(0.0, 0.025));
    }
}

proptest! {
    #[test]
    fn the_mean_lies_in_its_interval_and_exchanging_a_and_b_turns_it(
        counts in prop::array::uniform3(0_u64..300), level in 0.001_f64..0.3
    ) {
        prop_assume!(counts.iter().sum::<u64>() > 0);
        let mean = (counts[2] as f64 - counts[0] as f64) / counts.iter().sum::<u64>() as f64;
        let [low, high] = sums(counts).interval(level);
        prop_assert!(-1.0 <= low && low <= mean && mean <= high && high <= 1.0);
        let [turned_low, turned_high] = sums([counts[2], counts[1], counts[0]]).interval(level);
        prop_assert!((low + turned_high).abs() < 1e-9 && (high + turned_low).abs() < 1e-9);
    }

    #[test]
    fn the_capital_falls_as_the_mean_that_it_bets_against_grows(
        counts in prop::array::uniform3(0_u64..300), delta in -0.99_f64..0.98
    ) {
        let sums = sums(counts);
        prop_assert!(sums.capital(delta + 0.01, 1) <= sums.capital(delta, 1) + 1e-9);
    }
}
