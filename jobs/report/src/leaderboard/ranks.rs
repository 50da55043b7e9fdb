//! Rank intervals: which ranks a policy may have, as far as the episodes tell.
//!
//! All pairs of policies are compared: by McNemar's exact test if both have the same episodes, else
//! by Fisher's. The p-values are corrected for their number by Holm (1979), so that with a
//! probability of at least 95 % no pair is wrongly called different. A policy that is worse than `b` others
//! and better than `w` others of `n` then has a rank from `1 + b` to `n − w`. That intervals of ranks
//! follow from simultaneous comparisons in this way is from Mogstad, Romano, Shaikh and Wilhelm,
//! *Inference for Ranks with Applications to Mobility across Neighbourhoods and Academic Achievement
//! across Countries*, Review of Economic Studies 91 (2024), 476–518; and Klein, Wright and
//! Wieczorek, *A Joint Confidence Region for an Overall Ranking of Populations*, Journal of the
//! Royal Statistical Society C 69 (2020), 589–606.

use crate::stats::paired::PairCounts;
use crate::stats::two_sample::fisher;

/// Outcomes of the episodes of a row, by task and seed in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Results(Vec<(EpisodeKey, bool)>);

/// Task and seed of an episode: two episodes with the same key begin in the same state.
pub(super) type EpisodeKey = (u64, u64);

impl Results {
    /// Collects outcomes in any order.
    pub(super) fn new(mut outcomes: Vec<(EpisodeKey, bool)>) -> Self {
        outcomes.sort_unstable();
        Self(outcomes)
    }

    /// Returns whether both have the same episodes.
    pub(super) fn is_paired_with(&self, other: &Self) -> bool {
        let keys = |results: &Self| results.0.iter().map(|(key, _)| *key).collect::<Vec<_>>();
        keys(self) == keys(other)
    }

    /// Returns the numbers of solved and of all episodes.
    fn counts(&self) -> [u64; 2] {
        let solved = self.0.iter().filter(|(_, solved)| *solved).count();
        [solved as u64, self.0.len() as u64]
    }

    /// Returns the p-value of the hypothesis that both solve equally many.
    fn p_value(&self, other: &Self) -> f64 {
        if !self.is_paired_with(other) {
            return fisher(self.counts(), other.counts());
        }
        let mut pairs = PairCounts::default();
        for ((_, a), (_, b)) in self.0.iter().zip(&other.0) {
            pairs.add(*a, *b);
        }
        pairs.mcnemar().map_or(1.0, |test| test.p)
    }

    fn rate(&self) -> f64 {
        let [solved, all] = self.counts();
        solved as f64 / all.max(1) as f64
    }
}

/// Returns the rank interval of each row at a family-wise error rate.
pub(super) fn intervals(rows: &[&Results], level: f64) -> Vec<[usize; 2]> {
    let mut pairs = Vec::new();
    for (a, one) in rows.iter().enumerate() {
        for (b, other) in rows.iter().enumerate().skip(a + 1) {
            pairs.push((one.p_value(other), a, b));
        }
    }
    pairs.sort_by(|x, y| x.0.total_cmp(&y.0));
    let mut ranks = vec![[1, rows.len()]; rows.len()];
    let all = pairs.len();
    for (nth, (p, a, b)) in pairs.into_iter().enumerate() {
        // Holm: the smallest of m p-values is compared with level / m, the next with level / (m − 1).
        if p > level / (all - nth) as f64 {
            break;
        }
        let (better, worse) = match rows[a].rate() > rows[b].rate() {
            true => (a, b),
            false => (b, a),
        };
        ranks[worse][0] += 1;
        ranks[better][1] -= 1;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a row that solves the episodes of `solved` among the first `count`.
    fn row(count: u64, solved: impl Fn(u64) -> bool) -> Results {
        Results::new((0..count).map(|seed| ((0, seed), solved(seed))).collect())
    }

    fn ranks(rows: &[Results]) -> Vec<[usize; 2]> {
        intervals(&rows.iter().collect::<Vec<_>>(), 0.05)
    }

    #[test]
    fn what_cannot_be_told_apart_shares_its_ranks() {
        let rows = [
            row(100, |seed| seed < 50),
            row(100, |seed| seed < 52),
            row(100, |seed| seed < 95),
        ];
        assert_eq!(ranks(&rows), [[2, 3], [2, 3], [1, 1]]);
        assert_eq!(ranks(&rows[..1]), [[1, 1]]);
        assert_eq!(ranks(&[]), [[0; 2]; 0]);
        let same = row(100, |seed| seed < 50);
        assert_eq!(ranks(&[same.clone(), same]), [[1, 2], [1, 2]]);
    }

    #[test]
    fn the_same_episodes_tell_more_than_others() {
        // 8 of 100 differ, all in favour of the second.
        let (a, b) = (row(100, |seed| seed < 60), row(100, |seed| seed < 68));
        assert_eq!(ranks(&[a.clone(), b.clone()]), [[2, 2], [1, 1]]);
        let elsewhere = Results::new((100..200).map(|seed| ((0, seed), seed < 168)).collect());
        assert!(!a.is_paired_with(&elsewhere) && a.is_paired_with(&b));
        assert_eq!(ranks(&[a, elsewhere]), [[1, 2], [1, 2]]);
    }

    #[test]
    fn the_number_of_comparisons_counts() {
        // p is 0.0078 between the first two: enough for one comparison, too much for ten.
        let first = row(100, |seed| seed < 60);
        let second = row(100, |seed| seed < 68);
        let mut rows = vec![first, second.clone()];
        assert_eq!(ranks(&rows)[0], [2, 2]);
        rows.extend(vec![second; 3]);
        assert_eq!(ranks(&rows)[0], [1, 5]);
    }

    /// The claim of the page: with a probability of at least 95 %, every interval has the true rank.
    #[test]
    fn intervals_have_all_true_ranks_in_19_of_20_leaderboards() {
        let rates = [0.5, 0.5, 0.6, 0.75, 0.9];
        // True ranks; the first two share the last ones.
        let wanted = [[4, 5], [4, 5], [3, 3], [2, 2], [1, 1]];
        let uniform = |round: u64, row: u64, seed: u64| {
            jobs::seed::noise(round * 16 + row, 7, seed) as f64 / (1u64 << 53) as f64
        };
        let (rounds, mut wrong) = (400, 0);
        for round in 0..rounds {
            let sample = |(row, rate): (usize, &f64)| {
                let outcome = |seed| ((0, seed), uniform(round, row as u64, seed) < *rate);
                Results::new((0..60).map(outcome).collect())
            };
            let rows: Vec<_> = rates.iter().enumerate().map(sample).collect();
            let has_true_rank = |(found, wanted): (&[usize; 2], &[usize; 2])| {
                found[0] <= wanted[0] && wanted[1] <= found[1]
            };
            wrong += u32::from(!ranks(&rows).iter().zip(&wanted).all(has_true_rank));
        }
        assert!(wrong <= 20, "{wrong} of {rounds}");
    }
}
