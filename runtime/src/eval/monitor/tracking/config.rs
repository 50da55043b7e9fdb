//! What trackers are told about a run at its start.

use std::collections::BTreeSet;

use jobs::job::{Job, Status};
use jobs::plan::RunPlan;
use serde_json::{Map, Value, json};

/// Maximum number of names in a list.
const MOST_NAMES: usize = 100;

/// Returns the configuration of a run, which has no secrets, because a plan has none.
pub fn config(plan: &RunPlan, world_size: usize) -> Map<String, Value> {
    let jobs = || plan.jobs.iter().filter(|job| job.status == Status::Pending);
    let names = |of: fn(&Job) -> String| {
        let names: BTreeSet<String> = jobs().map(of).collect();
        names.into_iter().take(MOST_NAMES).collect::<Vec<_>>()
    };
    let git = plan.git.as_ref();
    let config = json!({
        "run_id": plan.id,
        "jobs_file": plan.jobs_file,
        "jobs_sha256": plan.jobs_sha256,
        "jobs": jobs().take(MOST_NAMES).map(|job| &job.name).collect::<Vec<_>>(),
        "environments": names(|job| job.environment.clone()),
        "policies": names(policy),
        "seed": plan.seed,
        "seeds_of_jobs": jobs().filter_map(|job| job.seed).take(MOST_NAMES).collect::<Vec<_>>(),
        "world_size": world_size,
        "options": plan.options,
        "rrun": plan.rrun,
        "git_commit": git.map(|git| &git.commit),
        "git_dirty": git.map(|git| git.dirty),
        "created": plan.created,
    });
    match config {
        Value::Object(config) => config,
        _ => Map::new(),
    }
}

/// Returns the policy type of a job, with the path that it is read from.
fn policy(job: &Job) -> String {
    match job.policy_config.get("model_path").and_then(Value::as_str) {
        Some(path) => format!("{} {path}", job.policy_type),
        None => job.policy_type.clone(),
    }
}
