//! Reruns a few episodes for verification: chooses them, plans their run, and compares the results.

use std::collections::BTreeMap;
use std::io;

use jobs::assign::Only;
use jobs::episode::EpisodeOutcome;
use jobs::episode_numbers::EpisodeNumbers;
use jobs::job::{Job, JobIndex, Length, Status};
use jobs::journal::Provenance;
use jobs::plan::RunPlan;
use jobs::seed;

use crate::Merged;

/// The chosen episodes by job, with their original results.
pub type Chosen = BTreeMap<String, BTreeMap<u64, EpisodeOutcome>>;

/// Chooses `count` scored episodes, spread evenly over the jobs that count their episodes and have
/// the same results again, as far as these have enough. Another `seed` chooses others.
///
/// # Errors
/// Returns the errors of the file system.
pub fn choose(merged: &Merged, plan: &RunPlan, count: usize, seed: u64) -> io::Result<Chosen> {
    let draw = |job: u64, number: u64| seed::noise(seed, job, number);
    let counted = |job: &&Job| {
        let is_counted = matches!(job.length, Length::Episodes(_));
        job.status == Status::Pending && is_counted && job.is_repeatable()
    };
    let mut jobs: Vec<(u64, &Job, Vec<u64>)> = Vec::new();
    for job in plan.jobs.iter().filter(counted) {
        let key = job.index.0 as u64;
        let mut numbers: Vec<u64> = merged.scored_of(job).collect();
        numbers.sort_by_key(|number| draw(key, number + 1));
        jobs.push((draw(key, 0), job, numbers));
    }
    jobs.sort_by_key(|(draw, ..)| *draw);
    let rounds = (0..).map(|nth| {
        jobs.iter()
            .filter_map(move |(_, job, numbers)| Some((*job, *numbers.get(nth)?)))
            .collect()
    });
    let rounds = rounds.take_while(|round: &Vec<(&Job, u64)>| !round.is_empty());
    let mut wanted: BTreeMap<&str, (&Job, Vec<u64>)> = BTreeMap::new();
    for (job, number) in rounds.flatten().take(count) {
        wanted
            .entry(&job.name)
            .or_insert((job, Vec::new()))
            .1
            .push(number);
    }
    let mut chosen = Chosen::new();
    for (name, (job, numbers)) in wanted {
        chosen.insert(name.to_owned(), outcomes(merged, job, &numbers)?);
    }
    Ok(chosen)
}

/// Returns the results of those of these episodes that were scored.
///
/// # Errors
/// Returns the errors of the file system.
pub fn outcomes(
    merged: &Merged,
    job: &Job,
    numbers: &[u64],
) -> io::Result<BTreeMap<u64, EpisodeOutcome>> {
    let mut found = BTreeMap::new();
    merged.each_episode_of(job, |episode| {
        if numbers.contains(&episode.episode) && episode.error.is_none() {
            found.insert(episode.episode, episode.outcome());
        }
    })?;
    Ok(found)
}

/// Returns the plan of a run of these episodes only, which `rrun eval --resume` can continue;
/// `None` if `--only` cannot express a job name.
pub fn plan(whole: &RunPlan, chosen: &Chosen) -> Option<RunPlan> {
    let numbers = |name: &str| -> Option<EpisodeNumbers> {
        let texts: Vec<_> = chosen.get(name)?.keys().map(u64::to_string).collect();
        texts.join(",").parse().ok()
    };
    let texts = chosen
        .keys()
        .map(|name| Some(format!("{name}:{}", numbers(name)?)));
    let only: Only = texts.collect::<Option<Vec<_>>>()?.join(";").parse().ok()?;
    let chosen = |job: &Job| Some((job.clone(), numbers(&job.name)?));
    let jobs = whole.jobs.iter().filter_map(chosen).enumerate();
    let jobs = jobs.map(|(nth, (job, numbers))| Job {
        index: JobIndex(nth),
        only: Some(numbers),
        ..job
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

/// Returns the differences between the original and the repeated results, one line each.
///
/// # Errors
/// Returns the errors of the file system.
pub fn differences(chosen: &Chosen, again: &Merged, plan: &RunPlan) -> io::Result<Vec<String>> {
    let mut lines = Vec::new();
    for job in &plan.jobs {
        let Some(before) = chosen.get(&job.name) else {
            continue;
        };
        let numbers: Vec<_> = before.keys().copied().collect();
        let after = outcomes(again, job, &numbers)?;
        for (number, before) in before {
            let text = match after.get(number) {
                None => "did not finish when it was run again".to_owned(),
                Some(after) => match difference(before, after) {
                    Some(difference) => format!("had a different result: {difference}"),
                    None => continue,
                },
            };
            lines.push(format!("{}: episode {number} {text}", job.name));
        }
    }
    Ok(lines)
}

fn solved(outcome: &EpisodeOutcome) -> String {
    let text = outcome.success.map(|success| success.to_string());
    text.unwrap_or_else(|| "unknown".to_owned())
}

/// Compares seed, success, end and steps, and the return bit by bit.
pub(crate) fn difference(before: &EpisodeOutcome, after: &EpisodeOutcome) -> Option<String> {
    let pairs = [
        ("seed", before.seed.to_string(), after.seed.to_string()),
        ("success", solved(before), solved(after)),
        (
            "end",
            format!("{:?}", before.end),
            format!("{:?}", after.end),
        ),
        (
            "length",
            before.length.to_string(),
            after.length.to_string(),
        ),
    ];
    let words = pairs
        .into_iter()
        .filter(|(_, before, after)| before != after);
    let mut words: Vec<_> = words
        .map(|(name, before, after)| format!("{name} {before}, then {after}"))
        .collect();
    if before.return_.to_bits() != after.return_.to_bits() {
        words.push(format!(
            "return {:?}, then {:?}",
            before.return_, after.return_
        ));
    }
    (!words.is_empty()).then(|| words.join("; "))
}
