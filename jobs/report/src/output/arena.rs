//! Writes the results in the layout of Isaac Lab-Arena's `experiment_runner`, which its reports and
//! its sensitivity analysis read.
//!
//! ```text
//! <output>/<run>/episode_results_rebuild<k>.jsonl   an episode per line
//!          arena_experiment_result.json             the same episodes by run and rebuild
//! ```
//! Names and fields are those of isaaclab_arena/evaluation/arena_experiment_result.py (b9a97d0d)
//! and episode_recorder.py (28e4eec9); `variations` has the values of the job, because what a
//! simulator sampled from them is not known here. Memory: the episodes of one run at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use jobs::episode::Episode;
use jobs::experiment::dotted;
use jobs::job::{Job, Status};
use jobs::layout::{RunFolder, replace};
use jobs::plan::RunPlan;
use serde_json::{Value, json};

use crate::Report;
use crate::merged::Merged;

/// The option that asks for these files; an Experiment implies it.
const OPTION: &str = "arena-output";

/// Returns whether a run is to have these files.
pub(super) fn is_wanted(plan: &RunPlan) -> bool {
    plan.options.contains_key(OPTION)
}

/// Writes the files of all runs that ended, in the place of earlier ones.
pub(super) fn write(folder: &RunFolder, merged: &Merged, report: &Report) -> io::Result<()> {
    replace(&folder.arena_experiment_result(), |file| {
        let mut result = BufWriter::new(file);
        let mut separator = "{\"runs\": {\n";
        for job in &merged.plan.jobs {
            let status = report.per_job.iter().find(|entry| entry.index == job.index);
            let Some(status @ (Status::Completed | Status::Failed)) = status.map(|job| job.status)
            else {
                continue;
            };
            let rebuilds = rebuilds(merged, job)?;
            write_files(folder, job, &rebuilds)?;
            write!(
                result,
                "{separator}{}: {}",
                json!(job.name),
                run(job, status, rebuilds)
            )?;
            separator = ",\n";
        }
        if separator != ",\n" {
            result.write_all(separator.as_bytes())?;
        }
        result.write_all(b"\n}}\n")?;
        result.flush()
    })
}

/// Returns the episodes of a run by rebuild, in Arena's form, each in the order of its number.
fn rebuilds(merged: &Merged, job: &Job) -> io::Result<BTreeMap<u64, Vec<Value>>> {
    let mut episodes = Vec::new();
    merged.each_episode_of(job, |episode| episodes.push(episode))?;
    let places: BTreeSet<_> = episodes.iter().map(place).collect();
    // Arena has one process, in which environments are numbered; here, each rank numbers its own.
    let numbers: BTreeMap<_, _> = places.into_iter().zip(0_u64..).collect();
    let variations = Value::Object(dotted::flat(&job.variations));
    let mut rebuilds: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for episode in &episodes {
        let count = counts.entry((episode.rebuild, place(episode))).or_default();
        let mut result = json!({
            "job_name": job.name,
            "env_id": numbers[&place(episode)],
            "episode_in_env": count,
            "seed": episode.seed,
            "success": episode.success,
            "episode_length": episode.length,
            "language_instruction": episode.language_instruction,
            "timestamp": episode.ended,
        });
        if !job.variations.is_empty() {
            result["variations"] = variations.clone();
        }
        *count += 1;
        rebuilds.entry(episode.rebuild).or_default().push(result);
    }
    Ok(rebuilds)
}

/// Returns the rank and the number of an episode's environment there.
fn place(episode: &Episode) -> (usize, usize) {
    (episode.rank, episode.env)
}

fn write_files(
    folder: &RunFolder,
    job: &Job,
    rebuilds: &BTreeMap<u64, Vec<Value>>,
) -> io::Result<()> {
    for (rebuild, episodes) in rebuilds {
        let path = folder.arena_episodes(&job.name, *rebuild);
        std::fs::create_dir_all(folder.job(&job.name))?;
        replace(&path, |file| {
            let mut lines = BufWriter::new(file);
            for episode in episodes {
                writeln!(lines, "{episode}")?;
            }
            lines.flush()
        })?;
    }
    Ok(())
}

/// Returns the entry of a run in the result.
fn run(job: &Job, status: Status, rebuilds: BTreeMap<u64, Vec<Value>>) -> Value {
    // The factory that makes an environment of Arena gets the name that Arena knows.
    let factory_type = job
        .env_args
        .get("env_kwargs")
        .and_then(|args| args.get("type"));
    let of_arena = factory_type.and_then(Value::as_str);
    let definition = of_arena.unwrap_or(&job.environment);
    let stem = Path::new(definition).file_stem();
    let name = match definition.ends_with(".yaml") || definition.ends_with(".yml") {
        true => stem.map_or(definition.into(), |stem| stem.to_string_lossy()),
        false => definition.into(),
    };
    let variant = job
        .policy_config
        .get("policy_variant")
        .and_then(Value::as_str);
    let rebuilds: Vec<_> = rebuilds
        .into_iter()
        .map(|(index, episodes)| json!({"index": index, "episodes": episodes}))
        .collect();
    json!({
        "environment": {"name": name, "definition": definition},
        "policy_variant": variant.unwrap_or(&job.policy_type),
        "status": status.as_str(),
        "rebuilds": rebuilds,
    })
}
