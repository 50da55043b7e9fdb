//! Statistics of a report, and of a comparison of two runs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Rates;

pub mod anytime;
pub mod matched;
pub mod non_inferiority;
pub mod paired;
pub(crate) mod tails;

/// The 97.5 % quantile of the normal distribution, for two-sided intervals of 95 %.
const Z95: f64 = 1.959_963_984_540_054;

/// Number of halvings with which a bound is found: a bound is accurate to twelve digits.
const HALVINGS: u32 = 40;

/// How many episodes of a set were solved. One that ended with an error is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Solved {
    /// Number of solved episodes.
    pub successes: u64,
    /// Number of all episodes.
    pub episodes: u64,
}

impl Solved {
    /// Returns `successes` of `episodes`.
    pub fn new(successes: u64, episodes: u64) -> Self {
        Self {
            successes,
            episodes,
        }
    }

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

    /// Returns the Wilson score interval of the rate at 95 % (Wilson 1927); `None` without an
    /// episode.
    pub fn wilson95(self) -> Option<[f64; 2]> {
        wilson95_of(self.rate()?, self.episodes as f64)
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
        Self::new(rates.successes, rates.episodes)
    }
}

impl From<SolvedRate> for Solved {
    fn from(score: SolvedRate) -> Self {
        Self::new(score.successes, score.episodes)
    }
}

/// Solved episodes with their rate, as files have them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SolvedRate {
    /// Number of episodes.
    pub episodes: u64,
    /// Number of solved episodes.
    pub successes: u64,
    /// `successes / episodes`; an episode that ended with an error counts as not solved.
    pub success_rate: Option<f64>,
    /// Wilson interval of `success_rate` at 95 %.
    pub wilson95: Option<[f64; 2]>,
}

impl From<Solved> for SolvedRate {
    fn from(solved: Solved) -> Self {
        Self {
            episodes: solved.episodes,
            successes: solved.successes,
            success_rate: solved.rate(),
            wilson95: solved.wilson95(),
        }
    }
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

/// Returns the largest value from `low` to 1 that is excluded; all below it are, too.
fn bound(low: f64, is_excluded: impl Fn(f64) -> bool) -> f64 {
    let (mut excluded, mut possible) = (low, 1.0);
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(excluded, possible);
        if is_excluded(middle) {
            excluded = middle;
        } else {
            possible = middle;
        }
    }
    excluded
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
        let close = |successes, episodes, low: f64, high: f64| {
            let [a, b] = Solved::new(successes, episodes).wilson95().unwrap();
            assert!((a - low).abs() < 5e-5 && (b - high).abs() < 5e-5, "{a} {b}");
        };
        // statsmodels 0.15.0, proportion_confint(method="wilson")
        close(0, 10, 0.0, 0.27753);
        close(10, 10, 0.72247, 1.0);
        close(81, 263, 0.25529, 0.36621);
        close(1, 1, 0.20655, 1.0);
        close(7, 20, 0.18119, 0.56715);
        close(500, 1000, 0.46907, 0.53093);
        assert_eq!(Solved::default().wilson95(), None);
    }

    proptest! {
        #[test]
        fn the_rate_lies_in_its_interval(trials in 1u64..5000, share in 0.0f64..=1.0) {
            let successes = (trials as f64 * share) as u64;
            let solved = Solved::new(successes, trials);
            let ([low, high], rate) = (solved.wilson95().unwrap(), solved.rate().unwrap());
            prop_assert!(0.0 <= low && low <= rate && rate <= high && high <= 1.0);
        }
    }
}
