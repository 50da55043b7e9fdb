//! Chooses the episodes that are run again.
//!
//! Every episode has the key SHA-256(`<seed>\n<job>\n<episode>`), in UTF-8 with the episode as a
//! decimal number. The k episodes with the smallest keys are the sample. The seed of the author's
//! sample is the hash of the certificate's contents, in which all results already are. Every
//! set of k episodes is equally likely, so a certificate with d changed episodes of n is found with
//! probability 1 − C(n−d, k) / C(n, k).

use std::collections::BTreeMap;
use std::io;

use jobs::job::JobIndex;
use jobs::plan::RunPlan;
use jobs::sha256;

use crate::Merged;
use crate::certificate::{Certificate, CertifiedEpisode, Contents, RepeatedEpisode};
use crate::verify::rerun::{self, Chosen};

/// An episode that was chosen.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChosenEpisode {
    /// Name of the job.
    pub job: String,
    /// Number within the job.
    pub episode: u64,
}

/// Chooses `count` of the scored episodes, or all if there are fewer.
pub fn choose(contents: &Contents, count: usize, seed: &str) -> Vec<ChosenEpisode> {
    let mut keys = Vec::new();
    for (position, job) in contents.jobs.iter().enumerate() {
        for episode in job.episodes.iter().filter(|one| one.success.is_some()) {
            let text = format!("{seed}\n{}\n{}", job.name(), episode.episode);
            keys.push((sha256::digest(text), position, episode.episode));
        }
    }
    keys.sort_unstable();
    keys.truncate(count);
    let chosen = |(_, position, episode): ([u8; 32], usize, u64)| ChosenEpisode {
        job: contents.jobs[position].name().to_owned(),
        episode,
    };
    keys.into_iter().map(chosen).collect()
}

/// Returns the chosen episodes by job with their results, for [`rerun::plan`].
pub fn results(certificate: &Certificate, chosen: &[ChosenEpisode]) -> Chosen {
    let mut results = Chosen::new();
    for one in chosen {
        if let Some(episode) = certificate.episode(&one.job, one.episode) {
            let of_job = results.entry(one.job.clone()).or_default();
            of_job.insert(one.episode, episode.outcome(JobIndex(0)));
        }
    }
    results
}

/// Returns what came out of the chosen episodes in another run, in their order.
///
/// # Errors
/// Returns the errors of the file system.
pub fn repeated(
    chosen: &[ChosenEpisode],
    again: &Merged,
    plan: &RunPlan,
) -> io::Result<Vec<RepeatedEpisode>> {
    let mut results = BTreeMap::new();
    for job in &plan.jobs {
        let of_job = chosen.iter().filter(|one| one.job == job.name);
        let numbers: Vec<_> = of_job.map(|one| one.episode).collect();
        let outcomes = rerun::outcomes(again, job, &numbers)?.into_values();
        results.extend(outcomes.map(|one| ((job.name.as_str(), one.episode), one)));
    }
    let one = |one: &ChosenEpisode| RepeatedEpisode {
        job: one.job.clone(),
        episode: one.episode,
        again: results
            .get(&(one.job.as_str(), one.episode))
            .map(CertifiedEpisode::from),
    };
    Ok(chosen.iter().map(one).collect())
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
