//! The settings in effect when a job starts in a rank, from all sources, for the journal.

use std::collections::BTreeMap;

use jobs::job::Job;
use serde_json::{Value, json};

use crate::device::gpu;
use crate::eval::rollout::inference::Held;
use crate::eval::rollout::job::JobContext;

/// Returns the settings by name; `null` means no limit or no value of its own.
pub fn effective(context: &JobContext, job: &Job, held: &Held) -> BTreeMap<String, Value> {
    let max_batch = context.max_batch(held);
    let own = [
        ("chunk_length", json!(held.chunk_length)),
        ("action_horizon", json!(held.spec.action_horizon)),
        ("device", json!(gpu::name(context.device))),
        (
            "max_batch",
            if max_batch == usize::MAX {
                Value::Null
            } else {
                json!(max_batch)
            },
        ),
        ("pipeline_stages", json!(context.stages(job, held))),
        ("num_envs", json!(job.num_envs)),
        ("base_seed", json!(context.seed)),
        ("seed", json!(job.seed)),
        ("env_restarts", json!(context.env_restarts())),
    ];
    // The rank's own settings win over facts of the policy with the same name.
    let said = held.facts.clone().into_iter();
    said.chain(own.map(|(name, value)| (name.to_owned(), value)))
        .collect()
}
