//! Numbers and tables for tests that simulate episodes.

use crate::stats::paired::PairCounts;

/// Returns the pairs that both policies solve, only A, only B, and neither.
pub(crate) fn pairs([both, only_a, only_b, neither]: [u64; 4]) -> PairCounts {
    PairCounts {
        both,
        only_a,
        only_b,
        neither,
    }
}

/// Numbers in [0, 1) from SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the share of so many simulations in which `is_found` is true.
pub(crate) fn share(
    simulations: u32,
    mut numbers: Numbers,
    mut is_found: impl FnMut(&mut Numbers) -> bool,
) -> f64 {
    let found = (0..simulations).filter(|_| is_found(&mut numbers)).count();
    found as f64 / f64::from(simulations)
}
