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
