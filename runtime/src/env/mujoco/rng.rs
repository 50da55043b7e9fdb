//! The random number generator for initial states, whose only state is the episode's seed.

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
pub(super) struct EpisodeRng(u64);

impl EpisodeRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number that is uniform in `low..high`, from the upper 53 bits.
    pub(super) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        let unit = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        low + (high - low) * unit
    }
}

#[cfg(test)]
mod tests {
    use crate::env::mujoco::rng::EpisodeRng;

    #[test]
    fn first_numbers_of_seed_zero_are_those_of_the_reference_code() {
        let mut rng = EpisodeRng::new(0);
        assert_eq!(
            [rng.next(), rng.next()],
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4]
        );
    }

    #[test]
    fn uniform_stays_in_its_range() {
        let mut rng = EpisodeRng::new(7);
        assert!((0..1000).all(|_| (-0.5..0.25).contains(&rng.uniform(-0.5, 0.25))));
    }
}
