//! An anytime-valid test and confidence sequence for the mean of paired differences: it may be
//! looked at after every round, and stopped at the first look that decides.
//!
//! A difference is −1 (only A solved the episode), 0 or 1 (only B). Whoever believes that their
//! mean exceeds `δ` bets a share `λ` on each of them, and multiplies the capital by
//! `1 + λ (difference − δ)`. If the mean is at most `δ`, the expected capital never grows, however
//! long is played, so that it ever reaches `1 / level` with a probability of at most `level`
//! (Ville 1939). The capital is a mixture over fixed bets: Waudby-Smith and Ramdas, *Estimating
//! means of bounded random variables by betting*, Journal of the Royal Statistical Society B 86
//! (2024), 1–27. It depends on how often each difference occurred, not on their order, so that no
//! state is kept between looks.
//!
//! Two things would break this, and have their answers here:
//!
//! * **Short episodes end first**, and they are often the solved ones. A test that looked at
//!   whatever has ended would see too many successes. It therefore sees rounds only: episode `r` of
//!   every job, once all of them have ended.
//! * **Jobs differ in difficulty**, so the differences of a round have different means `μ_j`. At the
//!   end of a round of `J` independent jobs, the expected factor is
//!   `Π (1 + λ (μ_j − δ)) ≤ (1 + λ (μ − δ))^J ≤ 1` by the inequality of arithmetic and geometric
//!   means, if the mean `μ` of all `μ_j` is at most `δ`. The hypothesis is thus about the mean over
//!   jobs with equal weight, and the test is exact at the ends of rounds.
//!
//! Jobs with the same seed begin in the same states, so their differences are not independent. They
//! form a cluster with one bet on the sum of their differences: the factor of `m` jobs is
//! `1 + λ (sum − m δ)`, and the inequality holds for clusters as it does for jobs. The bets must then
//! be smaller: `λ` is below `1 / (m (1 + δ))` for the largest cluster, so that no loss exceeds the
//! capital.

use std::collections::BTreeMap;

use crate::stats::bound;

/// Number of bets in the mixture. More bets find a fitting one, and each has less of the capital.
const BETS: i32 = 16;

/// The largest and the smallest bet, as shares of the largest one that cannot lose all. Large bets
/// win when outcomes differ rarely, small ones when they often do.
const LARGEST: f64 = 0.97;
const SMALLEST: f64 = 0.02;

/// The differences of complete rounds, as counts of cluster sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairedSums {
    /// Number of jobs in the largest cluster of a round.
    largest: u32,
    /// How often a cluster of this many pairs had this sum of differences.
    counts: BTreeMap<(u32, i32), u64>,
}

impl PairedSums {
    /// Creates the sums of no round. `largest` is the number of jobs in the largest cluster, 1 if
    /// all jobs are independent; it must be known before the first round.
    pub fn new(largest: u32) -> Self {
        Self {
            largest: largest.max(1),
            counts: BTreeMap::new(),
        }
    }

    /// Adds a cluster of `pairs` pairs, whose differences have this sum. A cluster without pairs
    /// changes nothing.
    ///
    /// # Panics
    /// Panics if the cluster is larger than the largest one, or the sum larger than the cluster.
    pub fn add(&mut self, pairs: u32, sum: i32) {
        assert!(
            pairs <= self.largest && sum.unsigned_abs() <= pairs,
            "a sum of {sum} over {pairs} pairs, in clusters of at most {}",
            self.largest
        );
        if pairs > 0 {
            *self.counts.entry((pairs, sum)).or_default() += 1;
        }
    }

    /// Returns whether the hypothesis that the mean is at most `delta` is rejected at `level`;
    /// `delta` is from −1 (excluded) to 1.
    pub fn is_above(&self, delta: f64, level: f64) -> bool {
        self.capital(delta, 1) >= -level.ln()
    }

    /// Returns whether the hypothesis that the mean is at least `delta` is rejected at `level`;
    /// `delta` is from −1 to 1 (excluded).
    pub fn is_below(&self, delta: f64, level: f64) -> bool {
        self.capital(-delta, -1) >= -level.ln()
    }

    /// Returns the confidence sequence of the mean at these counts: all means that are rejected on
    /// neither side at half the level. Over all looks together, it misses the true mean with a
    /// probability of at most `level`.
    pub fn interval(&self, level: f64) -> [f64; 2] {
        let low = self.bound(1, level / 2.0);
        let high = -self.bound(-1, level / 2.0);
        [low, high]
    }

    /// Returns the largest mean, of the differences times `sign`, that is still rejected.
    fn bound(&self, sign: i32, level: f64) -> f64 {
        // The capital falls as `delta` grows, from any wealth at −1 to a loss at 1.
        bound(-1.0, |mean| self.capital(mean, sign) >= -level.ln())
    }

    /// Returns the logarithm of the capital of a bettor who believes that the mean of the
    /// differences times `sign` exceeds `delta`, which must be from −1 (excluded) to 1.
    fn capital(&self, delta: f64, sign: i32) -> f64 {
        let most = 1.0 / (f64::from(self.largest) * (1.0 + delta));
        let logarithms: Vec<f64> = bets()
            .map(|share| self.logarithm(share * most, delta, sign))
            .collect();
        // The largest term is taken out, because the capital itself may overflow.
        let largest = logarithms.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = logarithms
            .iter()
            .map(|logarithm| (logarithm - largest).exp())
            .sum();
        largest + (sum / f64::from(BETS)).ln()
    }

    /// Returns the logarithm of the product of all factors of one bet.
    fn logarithm(&self, bet: f64, delta: f64, sign: i32) -> f64 {
        self.counts
            .iter()
            .map(|((pairs, sum), count)| {
                let gain = f64::from(sum * sign) - f64::from(*pairs) * delta;
                *count as f64 * (bet * gain).ln_1p()
            })
            .sum()
    }
}

/// Returns the bets of the mixture, as shares of the largest bet that cannot lose all; their ratios
/// are equal.
fn bets() -> impl Iterator<Item = f64> {
    let ratio = (SMALLEST / LARGEST).ln() / f64::from(BETS - 1);
    (0..BETS).map(move |nth| LARGEST * (ratio * f64::from(nth)).exp())
}

#[cfg(test)]
mod tests;
