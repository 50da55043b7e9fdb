//! The noise from which chunks start: a function of the policy's seed, the episode's seed and the
//! number of the inference in the episode.

use jobs::seed;

/// The noise of one episode.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::policy) struct NoiseSource {
    /// Seed of the episode.
    episode: u64,
    /// Number of its inferences so far.
    inferences: u64,
}

impl NoiseSource {
    /// Creates the source of an episode that starts.
    pub(in crate::policy) fn new(episode: u64) -> Self {
        Self {
            episode,
            inferences: 0,
        }
    }

    /// Returns the seed of the next inference's noise, for a policy with the seed `policy`.
    pub(in crate::policy) fn next_noise(&mut self, policy: u64) -> u64 {
        let seed = seed::noise(policy, self.episode, self.inferences);
        self.inferences += 1;
        seed
    }
}
