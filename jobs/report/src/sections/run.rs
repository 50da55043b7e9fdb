//! Computes the sections of a report about the run: time, machines and configuration.

use std::collections::{BTreeMap, BTreeSet};

use jobs::journal::RankStart;
use jobs::time::Moment;
use serde_json::Value;

use crate::Context;
use crate::merged::Merged;
use crate::merged::lives::Events;
use crate::schema::{ConfigReport, GpuReport, JobReport, LaunchReport, PolicyReport, RunReport};
use crate::sections::per_job::distinct;

/// Returns when and where the run took place, and how its report was made.
pub(crate) fn run(merged: &Merged, context: Context) -> RunReport {
    let starts = || merged.starts();
    let gpus = merged
        .state
        .events
        .iter()
        .flat_map(Events::gpus)
        .map(|(start, gpu)| GpuReport {
            host: start.host.clone(),
            node: start.node,
            index: gpu.index,
            name: gpu.name.clone(),
            bytes: gpu.bytes,
            uuid: gpu.uuid.clone(),
        });
    RunReport {
        id: merged.plan.id.clone(),
        started: starts().map(|start| start.started.clone()).min(),
        ended: merged.state.span.map(|[_, last]| last.text()),
        wall_s: merged.state.span.map(|[first, last]| last.since(first)),
        written: context.created,
        argv: context.argv,
        git: merged.plan.git.clone(),
        world_size: world_size(&merged.state.events).unwrap_or(context.world_size),
        hosts: distinct(starts().map(|start| start.host.clone())),
        gpus: distinct(gpus),
        versions: versions(starts()),
        launches: launches(&merged.state.events),
        resumed_from: merged.plan.resumed_from.clone(),
        gathered_by: context.route,
        missing_ranks: context.missing_ranks,
        stopped: context.stopped,
        rrun: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// Returns the number of ranks of the last launch that had something to do, if a later launch had
/// nothing to do.
fn world_size(events: &[Events]) -> Option<usize> {
    let repeats = events.iter().flat_map(|events| &events.repeats);
    let last_repeat = repeats
        .map(|life| Moment::parse(&life.start.started))
        .max()?;
    let lives = events.iter().flat_map(|events| &events.lives);
    let last = lives.max_by_key(|life| Moment::parse(&life.start.started))?;
    (Moment::parse(&last.start.started) < last_repeat).then_some(last.start.world_size)
}

/// Returns the starts of the lowest rank, without the restarts by its launcher; in a merged folder
/// those of each run.
fn launches(events: &[Events]) -> Vec<LaunchReport> {
    let mut lowest: BTreeMap<&str, &Events> = BTreeMap::new();
    let has_begun = |events: &&Events| !events.lives.is_empty() || !events.repeats.is_empty();
    for events in events.iter().filter(has_begun) {
        let kept = lowest.entry(run_of(&events.journal)).or_insert(events);
        if events.rank < kept.rank {
            *kept = events;
        }
    }
    let lives = lowest
        .values()
        .flat_map(|events| events.lives.iter().chain(&events.repeats));
    let starts = lives.map(|life| &life.start);
    let first = starts.filter(|start| start.restart == 0 && start.round == 0);
    distinct(first.map(|start| LaunchReport {
        started: start.started.clone(),
        world_size: start.world_size,
    }))
}

/// Returns the suffix that a merged folder adds to the journals of a run: `5f1c` of
/// `journal/journal_rank0_5f1c.jsonl`.
fn run_of(journal: &str) -> &str {
    let stem = journal.strip_suffix(".jsonl").unwrap_or(journal);
    let name = stem
        .rsplit('/')
        .next()
        .unwrap_or(stem)
        .strip_prefix("journal_rank")
        .unwrap_or(stem);
    name.split_once('_').map_or("", |(_, run)| run)
}

/// Returns the versions that ranks reported, by program or library.
pub(crate) fn versions<'a>(
    starts: impl Iterator<Item = &'a RankStart>,
) -> BTreeMap<String, Vec<String>> {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, version) in starts.flat_map(|start| &start.versions) {
        versions
            .entry(name.clone())
            .or_default()
            .insert(version.clone());
    }
    versions
        .into_iter()
        .map(|(name, found)| (name, found.into_iter().collect()))
        .collect()
}

/// Returns what was asked for, and the settings in effect.
pub(crate) fn config(merged: &Merged, jobs: &[JobReport]) -> ConfigReport {
    let plan = &merged.plan;
    let starts = merged.starts();
    ConfigReport {
        jobs_file: plan.jobs_file.clone(),
        sha256: plan.jobs_sha256.clone(),
        seed: plan.seed,
        world_size_at_start: plan.world_size,
        policies: policies(merged, jobs),
        device_rules: distinct(
            starts
                .map(|start| start.device_reason.clone())
                .filter(|reason| !reason.is_empty()),
        ),
        settings: common(jobs),
    }
}

fn policies(merged: &Merged, jobs: &[JobReport]) -> Vec<PolicyReport> {
    let of = |job: &&JobReport, path: &str| {
        job.settings.get("policy_path").and_then(Value::as_str) == Some(path)
    };
    let dtype = |job: &JobReport| Some(job.settings.get("dtype")?.as_str()?.to_owned());
    distinct(merged.policies().iter().map(|files| {
        PolicyReport {
            files: files.into(),
            dtypes: distinct(
                jobs.iter()
                    .filter(|job| of(job, &files.path))
                    .filter_map(dtype),
            ),
        }
    }))
}

/// Returns the settings that all jobs which were begun have in common.
fn common(jobs: &[JobReport]) -> BTreeMap<String, Value> {
    let mut begun = jobs.iter().filter(|job| !job.settings.is_empty());
    let Some(first) = begun.next() else {
        return BTreeMap::new();
    };
    begun.fold(first.settings.clone(), |mut common, job| {
        common.retain(|name, value| job.settings.get(name) == Some(value));
        common
    })
}
