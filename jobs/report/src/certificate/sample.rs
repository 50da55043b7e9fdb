//! The sample of a certificate, and what it proves: a certificate with d changed episodes of n is
//! found with probability 1 − C(n−d, k) / C(n, k).

use crate::EpisodeId;
use crate::certificate::{Certificate, Contents, RepeatedEpisode};
use crate::verify::rerun::{self, Outcomes};

/// Chooses `count` of the scored episodes, or all if there are fewer.
pub fn choose(contents: &Contents, count: usize, seed: &str) -> Vec<EpisodeId> {
    let scored = contents.jobs.iter().flat_map(|job| {
        let scored = job.episodes.iter().filter(|one| one.success.is_some());
        scored.map(|one| (job.name(), one.episode))
    });
    rerun::choose(scored, count, seed)
}

/// Returns the results that a certificate has of these episodes.
pub fn results(certificate: &Certificate, chosen: &[EpisodeId]) -> Outcomes {
    let result = |one: &EpisodeId| {
        let outcome = certificate.episode(&one.job, one.episode)?;
        Some((one.clone(), *outcome))
    };
    chosen.iter().filter_map(result).collect()
}

/// Returns what came out of the chosen episodes in another run, in their order.
pub fn repeated(chosen: &[EpisodeId], again: &Outcomes) -> Vec<RepeatedEpisode> {
    let one = |one: &EpisodeId| RepeatedEpisode {
        id: one.clone(),
        again: again.get(one).copied(),
    };
    chosen.iter().map(one).collect()
}

/// Returns the probability that `sampled` of `episodes` include one of `changed`: 1 − C(n−d, k) /
/// C(n, k).
pub fn probability_of_finding(episodes: u64, changed: u64, sampled: u64) -> f64 {
    let (changed, sampled) = (changed.min(episodes), sampled.min(episodes));
    if changed + sampled > episodes {
        return 1.0;
    }
    let missed = |nth: u64| (episodes - changed - nth) as f64 / (episodes - nth) as f64;
    1.0 - (0..sampled).map(missed).product::<f64>()
}
