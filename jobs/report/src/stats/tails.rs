//! Tails of distributions: Student's t and the binomial one, with the exact interval of a rate.

use crate::stats::bound;

/// 97.5 % quantiles of Student's t-distribution with 1 to 30 degrees of freedom, from scipy 1.17.1,
/// `t.ppf(.975, df)`.
const T975: [f64; 30] = [
    12.706_204_736,
    4.302_652_730,
    3.182_446_305,
    2.776_445_105,
    2.570_581_836,
    2.446_911_851,
    2.364_624_252,
    2.306_004_135,
    2.262_157_163,
    2.228_138_852,
    2.200_985_160,
    2.178_812_830,
    2.160_368_656,
    2.144_786_688,
    2.131_449_546,
    2.119_905_299,
    2.109_815_578,
    2.100_922_040,
    2.093_024_054,
    2.085_963_447,
    2.079_613_845,
    2.073_873_068,
    2.068_657_610,
    2.063_898_562,
    2.059_538_553,
    2.055_529_439,
    2.051_830_516,
    2.048_407_142,
    2.045_229_642,
    2.042_272_456,
];

/// Returns the 97.5 % quantile of Student's t-distribution with at least one degree of freedom
/// (`df`). Beyond the table it uses an expansion about the normal distribution (Abramowitz and
/// Stegun 26.7.5), which is accurate to 2e-6 there.
pub(super) fn student975(df: u64) -> f64 {
    let tabled = usize::try_from(df)
        .ok()
        .and_then(|df| T975.get(df.max(1) - 1));
    tabled.copied().unwrap_or_else(|| {
        let (z, v) = (crate::stats::Z95, df as f64);
        let power = |n| z.powi(n);
        z + (power(3) + z) / (4.0 * v)
            + (5.0 * power(5) + 16.0 * power(3) + 3.0 * z) / (96.0 * v * v)
            + (3.0 * power(7) + 19.0 * power(5) + 17.0 * power(3) - 15.0 * z) / (384.0 * v * v * v)
    })
}

/// Returns the interval of Clopper and Pearson (1934) for `solved` of `episodes`, which misses the
/// rate with a probability of at most `level`. It also holds for the mean rate of episodes whose
/// rates differ: their sum varies less (Hoeffding 1956).
///
/// # Panics
/// Panics if there are more solved episodes than episodes.
pub(crate) fn clopper_pearson(solved: u64, episodes: u64, level: f64) -> [f64; 2] {
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
    fn students_quantiles_agree_with_scipy() {
        // scipy 1.17.1, scipy.stats.t.ppf(.975, df)
        for (df, wanted) in [
            (1, 12.706_204_736),
            (30, 2.042_272_456),
            (31, 2.039_513_446),
            (100, 1.983_971_519),
        ] {
            let found = student975(df);
            assert!((found - wanted).abs() < 2e-6, "{df}: {found}");
        }
        assert!(student975(u64::MAX) - crate::stats::Z95 < 1e-9);
    }

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
