//! Statistics of a report, and of a comparison of two runs.

use std::fmt;

use crate::Rates;

pub mod anytime;
pub mod binomial;
pub mod matched;
pub mod non_inferiority;
mod normal;
pub mod paired;
#[cfg(test)]
pub(crate) mod simulated;

/// The 97.5 % quantile of the normal distribution, for two-sided intervals of 95 %.
const Z95: f64 = 1.959_963_984_540_054;

/// How many episodes of a set were solved. One that ended with an error is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Solved {
    /// Number of solved episodes.
    pub successes: u64,
    /// Number of all episodes.
    pub episodes: u64,
}

impl Solved {
    /// Counts outcomes; `None` is an error.
    pub fn of(outcomes: impl IntoIterator<Item = Option<bool>>) -> Self {
        let mut solved = Self::default();
        for outcome in outcomes {
            solved.episodes += 1;
            solved.successes += u64::from(outcome == Some(true));
        }
        solved
    }

    /// Returns the share of solved episodes; `None` without an episode.
    pub fn rate(self) -> Option<f64> {
        (self.episodes > 0).then(|| self.successes as f64 / self.episodes as f64)
    }

    /// Returns the Wilson interval of the rate at 95 %; `None` without an episode.
    pub fn wilson95(self) -> Option<[f64; 2]> {
        wilson95(self.successes, self.episodes)
    }

    /// Returns the rate and its interval: `64.6 % solved (95 %: 56.5 to 71.9)`. It is empty without
    /// an episode.
    pub fn share(self) -> String {
        let Some((rate, [low, high])) = self.rate().zip(self.wilson95()) else {
            return String::new();
        };
        let [rate, low, high] = [rate, low, high].map(|share| share * 100.0);
        format!("{rate:.1} % solved (95 %: {low:.1} to {high:.1})")
    }
}

impl fmt::Display for Solved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.successes, self.episodes)
    }
}

impl From<&Rates> for Solved {
    fn from(rates: &Rates) -> Self {
        Self {
            successes: rates.successes,
            episodes: rates.episodes,
        }
    }
}

/// Returns the Wilson score interval at 95 % for `successes` of `trials` (Wilson 1927); `None`
/// without trials.
pub fn wilson95(successes: u64, trials: u64) -> Option<[f64; 2]> {
    wilson95_of(successes as f64 / trials as f64, trials as f64)
}

/// Returns the Wilson score interval at 95 % for a rate; `None` without trials. The number of
/// trials need not be whole.
fn wilson95_of(p: f64, n: f64) -> Option<[f64; 2]> {
    if n <= 0.0 {
        return None;
    }
    let z2 = Z95 * Z95;
    let centre = p + z2 / (2.0 * n);
    let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let bound = |value: f64| (value / (1.0 + z2 / n)).clamp(0.0, 1.0);
    let low = if p <= 0.0 { 0.0 } else { bound(centre - half) };
    let high = if p >= 1.0 { 1.0 } else { bound(centre + half) };
    Some([low, high])
}

/// Returns the mean; `None` without values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values
        .into_iter()
        .fold((0.0, 0u64), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wilson_agrees_with_published_values() {
        let close = |found: Option<[f64; 2]>, low: f64, high: f64| {
            let [a, b] = found.unwrap();
            assert!((a - low).abs() < 5e-5 && (b - high).abs() < 5e-5, "{a} {b}");
        };
        // statsmodels 0.15.0, proportion_confint(method="wilson")
        close(wilson95(0, 10), 0.0, 0.27753);
        close(wilson95(10, 10), 0.72247, 1.0);
        close(wilson95(81, 263), 0.25529, 0.36621);
        close(wilson95(1, 1), 0.20655, 1.0);
        close(wilson95(7, 20), 0.18119, 0.56715);
        close(wilson95(500, 1000), 0.46907, 0.53093);
        assert_eq!(wilson95(0, 0), None);
    }

    proptest! {
        #[test]
        fn the_rate_lies_in_its_interval(trials in 1u64..5000, share in 0.0f64..=1.0) {
            let successes = (trials as f64 * share) as u64;
            let [low, high] = wilson95(successes, trials).unwrap();
            let rate = successes as f64 / trials as f64;
            prop_assert!(0.0 <= low && low <= rate && rate <= high && high <= 1.0);
        }
    }
}
