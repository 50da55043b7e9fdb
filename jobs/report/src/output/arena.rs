//! Writes the results in the layout of Isaac Lab-Arena's `experiment_runner`, which its reports
//! read.
//!
//! ```text
//! <output>/<run>/episode_results_rebuild<k>.jsonl   an episode per line; empty if none has finished
//!          arena_experiment_result.json             the same episodes by run and rebuild
//! ```
//! Names and fields are those of isaaclab_arena/evaluation/arena_experiment_result.py (b9a97d0d)
//! and episode_recorder.py (28e4eec9). What a simulator sampled from the variations of a run is not
//! known here, so episodes have no `variations`. Memory: the episodes of one run at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::path::Path;

use jobs::episode::Episode;
use jobs::job::{Job, Status};
use jobs::layout::{RunFolder, replace};
use jobs::plan::RunPlan;
use jobs::policies::PolicyType;
use jobs::tree;
use serde_json::{Value, json};

use crate::Report;
use crate::merged::Merged;

/// The option that asks for these files; an Experiment implies it.
const OPTION: &str = "arena-output";

/// Most builds of a run of which those without an episode have a file, too: a journal that says how
/// many there are may come from another user.
const MOST_EMPTY: u64 = 10_000;

/// The variant of an openpi policy that names none, as in Arena.
const PI_VARIANT: &str = "pi05";

/// Returns whether a run is to have these files.
pub(super) fn is_wanted(plan: &RunPlan) -> bool {
    plan.options.contains_key(OPTION)
}

/// Writes the files of all runs that ended, in the place of earlier ones.
pub(super) fn write(folder: &RunFolder, merged: &Merged, report: &Report) -> io::Result<()> {
    replace(&folder.arena_experiment_result(), |result| {
        let mut separator = "{\"runs\": {\n";
        for job in &merged.plan.jobs {
            let status = report.per_job[job.index.0].status;
            if !matches!(status, Status::Completed | Status::Failed) {
                continue;
            }
            let rebuilds = rebuilds(merged, job, status)?;
            std::fs::create_dir_all(folder.job(&job.name))?;
            for (rebuild, episodes) in &rebuilds {
                write_file(&folder.arena_episodes(&job.name, *rebuild), episodes)?;
            }
            let (name, run) = (json!(job.name), run(job, status, rebuilds));
            write!(result, "{separator}{name}: {run}")?;
            separator = ",\n";
        }
        if separator != ",\n" {
            result.write_all(separator.as_bytes())?;
        }
        result.write_all(b"\n}}\n")
    })
}

/// Returns the episodes of a run by rebuild, in Arena's form, each in the order of its number.
fn rebuilds(merged: &Merged, job: &Job, status: Status) -> io::Result<BTreeMap<u64, Vec<Value>>> {
    let mut episodes = Vec::new();
    merged.each_episode_of(job, |episode| episodes.push(episode))?;
    let places: BTreeSet<_> = episodes.iter().map(place).collect();
    // Arena has one process, in which environments are numbered; here, each rank numbers its own.
    let numbers: BTreeMap<_, _> = places.into_iter().zip(0_u64..).collect();
    let started = started(job, status, &episodes);
    let mut rebuilds: BTreeMap<_, _> = (0..started).map(|number| (number, Vec::new())).collect();
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for episode in &episodes {
        let count = counts.entry((episode.rebuild, place(episode))).or_default();
        let result = json!({
            "job_name": job.name,
            "env_id": numbers[&place(episode)],
            "episode_in_env": count,
            "seed": episode.seed,
            "success": episode.success,
            "episode_length": episode.length,
            "language_instruction": episode.language_instruction,
            "timestamp": episode.ended,
        });
        *count += 1;
        rebuilds.entry(episode.rebuild).or_default().push(result);
    }
    Ok(rebuilds)
}

/// Returns how many rebuilds have started for certain, as far as they need files.
fn started(job: &Job, status: Status, episodes: &[Episode]) -> u64 {
    let last = episodes.iter().map(|episode| episode.rebuild).max();
    let started = match status {
        Status::Completed => job.num_rebuilds,
        _ => last.map_or(1, |last| last.saturating_add(1)),
    };
    match job.num_rebuilds {
        ..=MOST_EMPTY => started.min(job.num_rebuilds),
        _ => 0,
    }
}

/// Returns the rank and the number of an episode's environment there.
fn place(episode: &Episode) -> (usize, usize) {
    (episode.rank, episode.env)
}

fn write_file(path: &Path, episodes: &[Value]) -> io::Result<()> {
    replace(path, |lines| {
        let mut episodes = episodes.iter();
        episodes.try_for_each(|episode| writeln!(lines, "{episode}"))
    })
}

/// Returns the entry of a run in the result.
fn run(job: &Job, status: Status, rebuilds: BTreeMap<u64, Vec<Value>>) -> Value {
    // The factory that makes an environment of Arena gets the name that Arena knows.
    let factory = job.env_args.get("env_kwargs");
    let of_arena = factory.and_then(|args| args.get("type")?.as_str());
    let definition = of_arena.unwrap_or(&job.environment);
    let rebuilds = rebuilds.into_iter();
    let rebuilds = rebuilds.map(|(index, episodes)| json!({"index": index, "episodes": episodes}));
    json!({
        "environment": {"name": environment_name(definition), "definition": definition},
        "policy_variant": policy_variant(job),
        "status": status,
        "rebuilds": Value::from_iter(rebuilds),
    })
}

/// Returns the name that Arena shows for an environment: that in its graph, if this is a file that
/// can be read, otherwise the stem of the file.
fn environment_name(definition: &str) -> String {
    let path = Path::new(definition);
    if !definition.ends_with(".yaml") && !definition.ends_with(".yml") {
        return definition.to_owned();
    }
    let graph = tree::read(path).and_then(|text| tree::parse(path, &text));
    match graph.as_ref().map(|graph| &graph["env_name"]) {
        Ok(Value::String(name)) => name.clone(),
        _ => {
            let stem = path.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        }
    }
}

/// Returns the variant of a policy: the one that the run names, otherwise Arena's default, otherwise
/// the name under which Arena knows the policy.
fn policy_variant(job: &Job) -> &str {
    let variant = job.policy_config.get("policy_variant");
    let default = || match PolicyType::of(&job.policy_type) {
        Some(PolicyType::Pi0Remote) => PI_VARIANT,
        Some(policy) => policy.row().name_in_arena(),
        None => &job.policy_type,
    };
    variant.and_then(Value::as_str).unwrap_or_else(default)
}
