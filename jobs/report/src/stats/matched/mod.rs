//! Statistics of episodes under control and under several variants: each control episode is matched
//! with its variants, which begin in the same state.
//!
//! The variants of one control episode are not independent: if the episode is hard, it is hard for
//! all of them. So a set counts once, however many variants it has. With one variant in each set,
//! interval and test are those of [`crate::stats::paired`].

use crate::stats::paired::{self, square_and_add};
use crate::stats::{mean, wilson95_of};

/// Number of informative sets up to which the test is exact.
const EXACT: usize = 1000;

/// An episode under control, and the same episode under at least one variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MatchedSet {
    /// Whether it was solved under control.
    pub control: bool,
    /// Number of variants.
    pub variants: u64,
    /// Number of variants under which it was solved.
    pub solved: u64,
}

impl MatchedSet {
    fn control(&self) -> f64 {
        f64::from(u8::from(self.control))
    }

    /// Returns the share of its variants that were solved.
    fn variant(&self) -> f64 {
        self.solved as f64 / self.variants as f64
    }
}

/// The rates of control and variants, and their difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchedRates {
    /// Share of the sets that were solved under control.
    pub control: f64,
    /// Share of the variants of a set that were solved, mean over the sets.
    pub variant: f64,
    /// `variant − control`.
    pub difference: f64,
    /// Interval of `difference` at 95 %.
    pub interval95: [f64; 2],
}

/// Returns the rates and the interval of their difference; `None` without sets.
///
/// The interval is Newcombe's (1998, method 10) in the general form of Zou and Donner,
/// *Construction of confidence limits about effect measures: a general approach*, Statistics in
/// Medicine 27 (2008), 1693–1702: Wilson's intervals of both rates are combined by squares, with
/// the correlation of the two. The control has one trial in each set. The variants have as many
/// trials as their variance between sets is worth (Rao and Scott, *A simple method for the analysis
/// of clustered binary data*, Biometrics 48 (1992), 577–585): at least one, at most all in a set.
pub fn rates(sets: &[MatchedSet]) -> Option<MatchedRates> {
    let control = mean(sets.iter().map(MatchedSet::control))?;
    let variant = mean(sets.iter().map(MatchedSet::variant))?;
    let difference = variant - control;
    let controls = wilson95_of(control, sets.len() as f64)?;
    let variants = wilson95_of(variant, effective_trials(sets, variant))?;
    let interval95 = square_and_add(
        [control, variant],
        [controls, variants],
        difference,
        correlation(sets, [control, variant]),
    );
    Some(MatchedRates {
        control,
        variant,
        difference,
        interval95,
    })
}

/// Returns the number of independent trials with the variance that the rate of the variants has.
fn effective_trials(sets: &[MatchedSet], rate: f64) -> f64 {
    let count = sets.len() as f64;
    let most = sets.iter().map(|set| set.variants).sum::<u64>() as f64;
    let squares: f64 = sets.iter().map(|set| (set.variant() - rate).powi(2)).sum();
    let variance = squares / (count - 1.0) / count;
    let trials = rate * (1.0 - rate) / variance;
    // Rates of 0 and 1, and a single set, show no variance.
    if trials.is_nan() {
        count
    } else {
        trials.clamp(count, most)
    }
}

/// Returns the correlation of control and variants over the sets.
fn correlation(sets: &[MatchedSet], [control, variant]: [f64; 2]) -> f64 {
    let count = sets.len() as f64;
    let sum = |of: &dyn Fn(&MatchedSet) -> f64| sets.iter().map(of).sum::<f64>();
    let product = sum(&|set| set.control() * set.variant());
    let spread_control = sum(&|set| (set.control() - control).powi(2));
    let spread_variant = sum(&|set| (set.variant() - variant).powi(2));
    let cross = count * (product - count * control * variant);
    let spread = count * (spread_control * spread_variant).sqrt();
    paired::correlation(cross, spread, count)
}

/// Returns the two-sided p-value of the hypothesis that an episode under control and its variants
/// are equally hard; `None` if no set has different outcomes.
///
/// It is the test of Miettinen, *Individual matching with multiple controls in the case of
/// all-or-none responses*, Biometrics 25 (1969), 339–355, for one variant McNemar's: if `s` of `k +
/// 1` outcomes of a set are solved, the control is one of them with probability `s / (k + 1)`.
/// Exact up to 1000 informative sets; beyond that the normal distribution, with a continuity
/// correction.
pub fn p(sets: &[MatchedSet]) -> Option<f64> {
    let solved = |set: &MatchedSet| set.solved + u64::from(set.control);
    let informative: Vec<_> = sets
        .iter()
        .filter(|set| (1..=set.variants).contains(&solved(set)))
        .collect();
    if informative.is_empty() {
        return None;
    }
    let chances: Vec<_> = informative
        .iter()
        .map(|set| solved(set) as f64 / (set.variants + 1) as f64)
        .collect();
    let found = informative.iter().filter(|set| set.control).count();
    Some(match chances.len() <= EXACT {
        true => exact(&chances, found),
        false => normal(&chances, found),
    })
}

/// Returns twice the smaller tail of the distribution of a sum of trials, at most 1.
fn exact(chances: &[f64], found: usize) -> f64 {
    // The probability of each number of successes in the trials so far.
    let mut distribution = vec![1.0];
    for chance in chances {
        distribution.push(0.0);
        for count in (1..distribution.len()).rev() {
            let success = distribution[count - 1] * chance;
            distribution[count] = distribution[count] * (1.0 - chance) + success;
        }
        distribution[0] *= 1.0 - chance;
    }
    let low: f64 = distribution[..=found].iter().sum();
    let high: f64 = distribution[found..].iter().sum();
    (2.0 * low.min(high)).min(1.0)
}

fn normal(chances: &[f64], found: usize) -> f64 {
    let expected: f64 = chances.iter().sum();
    let variance: f64 = chances.iter().map(|chance| chance * (1.0 - chance)).sum();
    let distance = ((found as f64 - expected).abs() - 0.5).max(0.0);
    libm::erfc(distance / (2.0 * variance).sqrt())
}

#[cfg(test)]
mod tests;
