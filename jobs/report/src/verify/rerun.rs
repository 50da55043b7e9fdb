//! Episodes that are run again for verification: which ones, their plan, and what came out.
//!
//! Every episode has the key SHA-256(`<seed>\n<job>\n<episode>`), in UTF-8 with the episode as a
//! decimal number. The k episodes with the smallest keys are run again, so that every set of k
//! episodes is equally likely. The seed of the sample of a certificate is the hash of its contents,
//! in which all results already are.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use jobs::assign::Only;
use jobs::episode::EpisodeOutcome;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::Provenance;
use jobs::numbers::Numbers;
use jobs::plan::RunPlan;
use jobs::sha256;

use crate::{EpisodeId, Merged};

/// Results by episode.
pub type Outcomes = BTreeMap<EpisodeId, EpisodeOutcome>;

/// Chooses `count` of these episodes, each given by its job and number, or all if there are fewer.
pub fn choose<'a>(
    episodes: impl Iterator<Item = (&'a str, u64)>,
    count: usize,
    seed: &str,
) -> Vec<EpisodeId> {
    let key = |(job, episode)| {
        let text = format!("{seed}\n{job}\n{episode}");
        (sha256::digest(text), job, episode)
    };
    let mut keys: Vec<_> = episodes.map(key).collect();
    keys.sort_unstable();
    keys.truncate(count);
    let chosen = |(_, job, episode): ([u8; 32], &str, u64)| EpisodeId {
        job: job.to_owned(),
        episode,
    };
    keys.into_iter().map(chosen).collect()
}

/// Returns the scored episodes of a run that have the same results again, of jobs that count their
/// episodes.
pub fn repeatable(merged: &Merged) -> impl Iterator<Item = (&str, u64)> {
    let is_counted = |job: &&Job| {
        matches!(job.length, Length::Episodes(_))
            && job.status == Status::Pending
            && job.is_repeatable()
    };
    let jobs = merged.plan.jobs.iter().filter(is_counted);
    jobs.flat_map(|job| {
        merged
            .scored_of(job)
            .map(|episode| (job.name.as_str(), episode))
    })
}

/// Returns the results of those of these episodes that were scored.
///
/// # Errors
/// Returns the errors of the file system.
pub fn outcomes(merged: &Merged, chosen: &[EpisodeId]) -> io::Result<Outcomes> {
    let mut found = Outcomes::new();
    for job in &merged.plan.jobs {
        let of_job = chosen.iter().filter(|one| one.job == job.name);
        let numbers: BTreeSet<u64> = of_job.map(|one| one.episode).collect();
        if numbers.is_empty() {
            continue;
        }
        merged.each_episode_of(job, |episode| {
            if episode.is_scored() && numbers.contains(&episode.episode) {
                let id = EpisodeId {
                    job: job.name.clone(),
                    episode: episode.episode,
                };
                found.insert(id, episode.outcome());
            }
        })?;
    }
    Ok(found)
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

/// Returns in what the result of an episode differs when it is run again; `None` if it does not.
pub fn difference(before: &EpisodeOutcome, again: Option<&EpisodeOutcome>) -> Option<String> {
    let Some(again) = again else {
        return Some("did not finish when it was run again".to_owned());
    };
    let difference = before.difference(again)?;
    Some(format!("had a different result: {difference}"))
}

/// Returns the differences between the original and the repeated results, one line each.
pub fn differences(before: &Outcomes, again: &Outcomes) -> Vec<String> {
    let line = |(id, before): (&EpisodeId, &EpisodeOutcome)| {
        let difference = difference(before, again.get(id))?;
        Some(format!("{}: episode {} {difference}", id.job, id.episode))
    };
    before.iter().filter_map(line).collect()
}
