//! A test of two success rates whose episodes are not paired.

/// Terms this much larger than that of the observed table count as equal to it: they are so but for
/// rounding.
const TIE: f64 = 1.0 + 1e-7;

/// Returns the two-sided p-value of Fisher's exact test: the probability, if both rates are equal, of
/// a table at most as likely as this one. `a` and `b` are solved and all episodes.
pub fn fisher(a: [u64; 2], b: [u64; 2]) -> f64 {
    let table = Hypergeometric {
        solved: a[0] + b[0],
        unsolved: a[1] + b[1] - a[0] - b[0],
        drawn: a[1],
    };
    let (low, high) = table.support();
    if low == high {
        return 1.0;
    }
    // Terms relative to the largest neither overflow nor need logarithms.
    let mode = table.mode().clamp(low, high);
    let (mut terms, mut term) = (vec![(mode, 1.0)], 1.0);
    for solved in mode..high {
        term *= table.ratio(solved);
        terms.push((solved + 1, term));
        if term == 0.0 {
            break;
        }
    }
    term = 1.0;
    for solved in (low..mode).rev() {
        term /= table.ratio(solved);
        terms.push((solved, term));
        if term == 0.0 {
            break;
        }
    }
    let observed = terms.iter().find(|(solved, _)| *solved == a[0]);
    let observed = observed.map_or(0.0, |(_, term)| *term);
    let all: f64 = terms.iter().map(|(_, term)| term).sum();
    let as_rare = terms.iter().filter(|(_, term)| *term <= observed * TIE);
    (as_rare.map(|(_, term)| term).sum::<f64>() / all).min(1.0)
}

/// How many of `drawn` episodes are solved, if they are drawn from solved and unsolved ones.
struct Hypergeometric {
    solved: u64,
    unsolved: u64,
    drawn: u64,
}

impl Hypergeometric {
    fn support(&self) -> (u64, u64) {
        let low = self.drawn.saturating_sub(self.unsolved);
        (low, self.drawn.min(self.solved))
    }

    /// Returns the most likely number.
    fn mode(&self) -> u64 {
        let all = u128::from(self.solved + self.unsolved) + 2;
        let product = (u128::from(self.drawn) + 1) * (u128::from(self.solved) + 1);
        u64::try_from(product / all).unwrap_or(u64::MAX)
    }

    /// Returns the probability of one more than `number`, relative to that of `number`.
    fn ratio(&self, number: u64) -> f64 {
        let left = (self.solved - number) as f64 * (self.drawn - number) as f64;
        let others = (self.unsolved + number + 1 - self.drawn) as f64;
        left / ((number + 1) as f64 * others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fishers_test_agrees_with_exact_fractions() {
        // Sums of math.comb as fractions, in Python
        for (a, b, wanted) in [
            ([8, 10], [1, 6], 0.034_965_034_965_034_97),
            ([10, 12], [16, 16], 0.174_603_174_603_174_6),
            ([0, 20], [5, 20], 0.047_124_047_124_047_12),
            ([50, 100], [70, 100], 0.005_937_341_166_015_534),
            ([480, 1000], [530, 1000], 0.028_393_696_370_678_4),
            ([3, 3], [0, 3], 0.1),
            ([7, 7], [5, 5], 1.0),
            ([1990, 2000], [1950, 2000], 1.323_140_679_595_637_4e-7),
        ] {
            let found = fisher(a, b);
            assert!((found / wanted - 1.0).abs() < 1e-9, "{a:?} {b:?}: {found}");
        }
    }

    proptest! {
        #[test]
        fn exchanging_the_sides_changes_nothing(a in 0u64..60, n in 1u64..60, b in 0u64..60, m in 1u64..60) {
            let (a, b) = ([a.min(n), n], [b.min(m), m]);
            let p = fisher(a, b);
            prop_assert!((0.0..=1.0).contains(&p));
            prop_assert!((p - fisher(b, a)).abs() < 1e-9);
        }
    }
}
