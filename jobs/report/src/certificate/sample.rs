//! Episodes of a certificate that are run again: which ones, their plan, what came out, and what that
//! proves.
//!
//! Every scored episode has the key SHA-256(`<seed>\n<job>\n<episode>`), in UTF-8 with the episode as
//! a decimal number. The k episodes with the smallest keys are run again, so that every set of k
//! episodes is equally likely. The seed of the author's sample is the hash of the contents, in which
//! all results already are. A certificate with d changed episodes of n is found with probability
//! 1 − C(n−d, k) / C(n, k).

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jobs::assign::Only;
use jobs::job::{Job, JobIndex};
use jobs::journal::Provenance;
use jobs::numbers::Numbers;
use jobs::plan::RunPlan;
use jobs::sha256;

use crate::certificate::{Certificate, Contents, RepeatedEpisode};
use crate::{EpisodeId, Merged};

/// Chooses `count` of the scored episodes, or all if there are fewer.
pub fn choose(contents: &Contents, count: usize, seed: &str) -> Vec<EpisodeId> {
    let mut scored = Vec::new();
    for job in &contents.jobs {
        let episodes = job.episodes.iter().filter(|one| one.success.is_some());
        scored.extend(episodes.map(|one| EpisodeId {
            job: job.name().to_owned(),
            episode: one.episode,
        }));
    }
    scored.sort_by_cached_key(|EpisodeId { job, episode }| {
        sha256::digest(format!("{seed}\n{job}\n{episode}"))
    });
    scored.truncate(count);
    scored
}

/// Returns the plan of a run of these episodes only, which `rrun eval --resume` can continue;
/// `None` if `--only` cannot express a job name.
pub fn plan(whole: &RunPlan, chosen: &[EpisodeId]) -> Option<RunPlan> {
    let numbers = |name: &str| -> Numbers {
        let of_job = chosen.iter().filter(|one| one.job == name);
        of_job.map(|one| one.episode).collect()
    };
    let names: BTreeSet<&str> = chosen.iter().map(|one| one.job.as_str()).collect();
    let texts = names.iter().map(|name| format!("{name}:{}", numbers(name)));
    let only: Only = texts.collect::<Vec<_>>().join(";").parse().ok()?;
    let is_chosen = |job: &&Job| names.contains(job.name.as_str());
    let jobs = whole.jobs.iter().filter(is_chosen).zip(0..);
    let jobs = jobs.map(|(job, nth)| Job {
        index: JobIndex(nth),
        only: Some(numbers(&job.name)),
        ..job.clone()
    });
    let mut options = whole.options.clone();
    options.insert("only".to_owned(), only.to_string());
    Some(RunPlan {
        id: format!("{}-again", whole.id),
        jobs: jobs.collect(),
        only: Some(only),
        options,
        resumed_from: Vec::new(),
        changed: Vec::new(),
        provenance: Provenance::default(),
        ..whole.clone()
    })
}

/// Returns what came out of the chosen episodes in another run, in their order.
///
/// # Errors
/// Returns the errors of the file system.
pub fn repeated(chosen: &[EpisodeId], again: &Merged) -> io::Result<Vec<RepeatedEpisode>> {
    let mut found = BTreeMap::new();
    for job in &again.plan.jobs {
        again.each_episode_of(job, |one| {
            if one.is_scored() {
                found.insert((job.name.as_str(), one.episode), one.outcome());
            }
        })?;
    }
    let one = |id: &EpisodeId| RepeatedEpisode {
        id: id.clone(),
        again: found.get(&(id.job.as_str(), id.episode)).copied(),
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

impl Certificate {
    /// Returns in what an episode came out otherwise when it was run again; `None` if it did not.
    pub fn difference(&self, one: &RepeatedEpisode) -> Option<String> {
        let EpisodeId { job, episode } = &one.id;
        let before = self.episode(job, *episode);
        let told = match (before, &one.again) {
            (None, _) => "is not in the certificate".to_owned(),
            (_, None) => "did not finish when it was run again".to_owned(),
            (Some(before), Some(again)) => {
                let difference = before.difference(again)?;
                format!("had a different result: {difference}")
            }
        };
        Some(format!("{job}: episode {episode} {told}"))
    }
}
