//! Sample values for tests, here and in other crates, which change them as they need.

use serde_json::{Value, json};

use crate::episode::{End, Episode};
use crate::eval_args::EvalArgs;
use crate::file::{self, JobFile};
use crate::job::{Job, JobIndex};
use crate::plan::RunPlan;

/// Returns an entry of a jobs file with these fields besides or instead of its own, which are three
/// episodes of `reach` with the scripted policy. A field that is null is left out.
///
/// # Panics
///
/// If the fields are no object.
pub fn entry(fields: Value) -> Value {
    let mut entry = json!({"name": "a", "arena_env_args": {"environment": "reach"},
                           "policy_type": "scripted", "num_episodes": 3});
    let Value::Object(fields) = fields else {
        panic!("no object: {fields}")
    };
    let entry_fields = entry.as_object_mut().expect("it is one");
    entry_fields.extend(fields);
    entry_fields.retain(|_, value| !value.is_null());
    entry
}

/// Returns the job of an [`entry`] with these fields.
///
/// # Panics
///
/// If they are refused.
pub fn job(fields: Value) -> Job {
    jobs([fields]).remove(0)
}

/// Returns the jobs of an [`entry`] for each of these fields.
///
/// # Panics
///
/// If they are refused.
pub fn jobs(fields: impl IntoIterator<Item = Value>) -> Vec<Job> {
    let entries: Vec<_> = fields.into_iter().map(entry).collect();
    file::parse(&json!({ "jobs": entries })).unwrap_or_else(|err| panic!("{err}"))
}

/// Returns what `rrun eval --jobs jobs.json` reads with these words besides.
///
/// # Panics
///
/// If they are refused.
pub fn eval_args(words: &[&str]) -> EvalArgs {
    let words = ["--jobs", "jobs.json"].iter().chain(words);
    let words: Vec<_> = words.map(Into::into).collect();
    EvalArgs::parse_words(&words).unwrap_or_else(|err| panic!("{err}"))
}

/// Returns the plan of jobs for two ranks.
pub fn plan(args: &EvalArgs, jobs: Vec<Job>) -> RunPlan {
    let file = JobFile {
        path: "jobs.json".into(),
        sha256: String::new(),
        jobs,
        model_server: None,
    };
    RunPlan::new(args, file, 2, String::new())
}

/// Returns the solved episode `number` of the job at `index`: ten steps on rank 0, nothing
/// recorded, no end time.
pub fn episode(index: usize, job: &str, number: u64) -> Episode {
    Episode {
        job: job.to_owned(),
        job_index: JobIndex(index),
        episode: number,
        seed: 1,
        success: Some(true),
        end: End::Success,
        length: 10,
        return_: 2.0,
        wall_s: 1.0,
        infer_calls: 1,
        ..Episode::default()
    }
}
