//! Computes the seed of an episode from the base seed, the job and the episode number alone.
//!
//! Rank, environment slot, `num_envs` and world size have no influence, so an episode is the same
//! anywhere.

use crate::job::Job;

/// Returns the seed of one episode.
///
/// A job's own `seed` replaces both the base seed *and* the job's name: two jobs with the same seed
/// (two policies on one task) see the same initial states. A variant has the seeds of its control.
pub fn episode(base: u64, job: &Job, episode: u64) -> u64 {
    let stream = match job.seed {
        Some(seed) => mix(seed),
        None => mix(base) ^ fnv1a(job.seed_name().as_bytes()),
    };
    // 53 bits, because some JSON parsers read numbers as doubles, and must not change it.
    mix(mix(stream).wrapping_add(episode)) >> 11
}

/// Returns the seed of the noise that a policy draws for one inference, from the policy's seed, the
/// episode's seed, and the number of the inference in the episode.
pub fn noise(policy: u64, episode: u64, inference: u64) -> u64 {
    mix(mix(mix(policy).wrapping_add(episode)).wrapping_add(inference)) >> 11
}

/// Finalizer of SplitMix64 (Steele, Lea, Flood 2014): every input bit affects every output bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Returns the 64-bit FNV-1a hash.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inference_draws_its_own_noise() {
        let seeds: std::collections::BTreeSet<u64> = (0..10)
            .flat_map(|episode| (0..10).map(move |inference| noise(10, episode, inference)))
            .collect();
        assert_eq!(seeds.len(), 100);
        assert_ne!(noise(10, 1, 2), noise(11, 1, 2));
    }
    use crate::samples;
    use serde_json::json;
    use std::collections::HashSet;

    fn job(name: &str, seed: Option<u64>) -> Job {
        samples::job(json!({"name": name, "seed": seed}))
    }

    #[test]
    fn seeds_stay_what_they_were() {
        assert_eq!(episode(42, &job("reach", None), 0), 2_867_065_121_620_603);
        assert_eq!(episode(42, &job("reach", Some(7)), 1), 901_430_470_397_971);
    }

    #[test]
    fn seeds_of_a_run_do_not_repeat() {
        let jobs = [job("a", None), job("b", None), job("c", Some(1))];
        let seeds: HashSet<_> = jobs
            .iter()
            .flat_map(|j| (0..10_000).map(move |e| episode(42, j, e)))
            .collect();
        assert_eq!(seeds.len(), 30_000);
    }

    #[test]
    fn a_jobs_own_seed_pairs_jobs_of_different_names() {
        let found = episode(1, &job("a", Some(3)), 5);
        assert_eq!(found, episode(2, &job("b", Some(3)), 5));
        assert_ne!(
            episode(1, &job("a", None), 5),
            episode(1, &job("b", None), 5)
        );
        assert_ne!(
            episode(1, &job("a", None), 5),
            episode(2, &job("a", None), 5)
        );
    }
}
