//! The settings in effect when a job starts in a rank, from all sources, for the journal.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::device::gpu;
use crate::eval::rollout::job::context::ActiveJob;

/// Returns the settings by name; `null` means no limit or no value of its own. `versions` are those
/// of the packages that simulate.
pub fn effective(
    active: &ActiveJob,
    versions: &BTreeMap<String, String>,
) -> BTreeMap<String, Value> {
    let (job, run, policy) = (active.job(), active.run, &active.policy);
    let max_batch = match active.max_batch() {
        usize::MAX => Value::Null,
        rows => json!(rows),
    };
    let own = [
        ("chunk_length", json!(policy.chunk_length)),
        ("action_horizon", json!(policy.horizon)),
        ("device", json!(gpu::name(run.device.device))),
        ("max_batch", max_batch),
        ("pipeline_stages", json!(active.stages())),
        ("num_envs", json!(job.num_envs)),
        ("base_seed", json!(run.plan.seed)),
        ("seed", json!(job.seed)),
        ("env_restarts", json!(run.args.env_restarts)),
    ];
    let latency = match active.latency.fixed() {
        Some(steps) => json!(steps),
        None => json!("measured"),
    };
    let latency = (active.latency.is_felt()).then(|| ("latency_steps".to_owned(), latency));
    // The rank's own settings win over facts of the policy with the same name.
    let facts = policy.reported.iter().cloned();
    let facts = facts.map(|(name, value)| (name.to_owned(), value));
    let simulator = (!versions.is_empty()).then(|| ("env_versions".to_owned(), json!(versions)));
    facts
        .chain(simulator)
        .chain(own.map(|(name, value)| (name.to_owned(), value)))
        .chain(latency)
        .collect()
}
