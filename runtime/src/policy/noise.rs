//! The noise from which chunks start: a function of the policy's seed, the episode's seed and the
//! number of the inference in the episode.

use jobs::seed;

/// What determines the noise of a row, beside the policy's seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowNoise {
    /// Seed of the episode.
    pub episode_seed: u64,
    /// Number of chunks that the episode has had. An inference that failed does not count, so it
    /// has the same noise when it is tried again.
    pub inference: u64,
}

impl RowNoise {
    /// Returns the seed of the noise for a policy with the seed `policy`.
    pub fn seed(self, policy: u64) -> u64 {
        seed::noise(policy, self.episode_seed, self.inference)
    }
}
