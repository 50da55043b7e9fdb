//! The exact interval of a success rate.

use crate::stats::bound;

/// Returns the interval of Clopper and Pearson (1934) for `solved` of `episodes`, which misses the
/// rate with a probability of at most `level`. It also holds for the mean rate of episodes whose
/// rates differ: their sum varies less (Hoeffding 1956).
///
/// # Panics
/// Panics if there are more solved episodes than episodes.
pub fn clopper_pearson(solved: u64, episodes: u64, level: f64) -> [f64; 2] {
    assert!(solved <= episodes, "{solved} of {episodes}");
    let low = lower_bound(solved, episodes, level / 2.0);
    let high = 1.0 - lower_bound(episodes - solved, episodes, level / 2.0);
    [low, high]
}

/// Returns the largest rate at which `solved` or more of `episodes` have a probability of at most
/// `level`.
fn lower_bound(solved: u64, episodes: u64, level: f64) -> f64 {
    if solved == 0 {
        return 0.0;
    }
    bound(0.0, |rate| at_least(solved, episodes, rate) <= level)
}

/// Returns the probability of `solved` or more of `episodes` at a rate between 0 and 1.
fn at_least(solved: u64, episodes: u64, rate: f64) -> f64 {
    if solved as f64 > rate * episodes as f64 {
        return tail(solved, episodes, rate);
    }
    1.0 - tail(episodes - solved + 1, episodes, 1.0 - rate)
}

/// Returns the probability of `from` or more, which must be at least the mean: its terms fall.
pub(super) fn tail(from: u64, episodes: u64, rate: f64) -> f64 {
    let (n, k) = (episodes as f64, from as f64);
    let mut logarithm = k * rate.ln() + (n - k) * (-rate).ln_1p();
    for nth in 1..=from.min(episodes - from) {
        logarithm += (n - nth as f64 + 1.0).ln() - (nth as f64).ln();
    }
    let (mut sum, mut term) = (1.0, 1.0);
    for number in from..episodes {
        term *= (episodes - number) as f64 / (number + 1) as f64 * rate / (1.0 - rate);
        sum += term;
        if term < sum * f64::EPSILON {
            break;
        }
    }
    (logarithm + f64::ln(sum)).exp()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_interval_agrees_with_sums_of_exact_fractions() {
        // Sums of math.comb as fractions, in Python
        for (solved, episodes, level, wanted) in [
            (0, 10, 0.05, [0.000000000000, 0.308497107819]),
            (10, 10, 0.05, [0.691502892181, 1.000000000000]),
            (7, 20, 0.05, [0.153909204784, 0.592188534533]),
            (46, 50, 0.025, [0.790352695578, 0.982011004981]),
            (1, 1, 0.05, [0.025000000000, 1.000000000000]),
            (50, 100, 0.01, [0.368861437359, 0.631138562641]),
        ] {
            let found = clopper_pearson(solved, episodes, level);
            for (found, wanted) in found.into_iter().zip(wanted) {
                assert!(
                    (found - wanted).abs() < 1e-9,
                    "{solved}/{episodes}: {found} {wanted}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn the_interval_contains_the_rate_and_shrinks_with_the_level(
            episodes in 1u64..2000, share in 0.0f64..=1.0
        ) {
            let solved = (episodes as f64 * share) as u64;
            let rate = solved as f64 / episodes as f64;
            let [low, high] = clopper_pearson(solved, episodes, 0.05);
            prop_assert!((0.0..=rate).contains(&low) && (rate..=1.0).contains(&high));
            let [lower, higher] = clopper_pearson(solved, episodes, 0.01);
            prop_assert!(lower <= low && high <= higher);
        }
    }
}
