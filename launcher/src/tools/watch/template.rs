//! The jobs of each checkpoint: those of the jobs file, with the checkpoint filled in.

use std::path::Path;

use jobs::file::{self, JobFile};
use jobs::policies::PolicyType;
use jobs::refusal::Refusal;
use jobs::rules;
use jobs::secrets;
use jobs::sha256;
use jobs::tree;
use serde_json::{Map, Value};

/// Stands for the path of the checkpoint, anywhere in a text of the jobs.
const PLACEHOLDER: &str = "{checkpoint}";

/// The setting that names a checkpoint.
const MODEL_PATH: &str = "model_path";

/// A jobs file whose jobs are run with many checkpoints.
#[derive(Clone, Debug)]
pub(super) struct Template {
    value: Value,
    has_placeholder: bool,
    /// SHA-256 of the jobs, without a checkpoint.
    pub(super) sha256: String,
}

impl Template {
    /// Reads a jobs file, and checks that its jobs would run.
    pub(super) fn read(path: &Path) -> Result<Self, Refusal> {
        let value = file::value(path)?;
        let template = Self {
            has_placeholder: mentions(&value),
            sha256: sha256::of(value.to_string()),
            value,
        };
        let example = template.filled(Path::new("checkpoint"));
        if example == template.value {
            return Err(Refusal::new(format_args!(
                "`{}`: no job has a policy with a checkpoint; write `{PLACEHOLDER}` where its path \
                 belongs",
                path.display()
            )));
        }
        let example = JobFile::new(path, String::new(), &example)?;
        secrets::check(&example.jobs, example.model_server.as_ref())
            .map_err(|refusal| Refusal::in_file(path, refusal))?;
        rules::check(&example.jobs, path)?;
        Ok(template)
    }

    /// Returns the jobs with a checkpoint: in place of each placeholder, or without any, as
    /// `model_path` of each policy that has one.
    pub(super) fn filled(&self, checkpoint: &Path) -> Value {
        let mut value = self.value.clone();
        let text = checkpoint.to_string_lossy();
        if self.has_placeholder {
            tree::each_text_mut(&mut value, &mut |found| {
                *found = found.replace(PLACEHOLDER, &text)
            });
            return value;
        }
        let jobs = value.get_mut("jobs").and_then(Value::as_array_mut);
        for job in jobs.into_iter().flatten().filter_map(Value::as_object_mut) {
            set_model_path(job, &text);
        }
        value
    }
}

fn set_model_path(job: &mut Map<String, Value>, checkpoint: &str) {
    let policy = job
        .get("policy_type")
        .and_then(Value::as_str)
        .and_then(PolicyType::of);
    if !policy.is_some_and(|policy| policy.row().has_checkpoint) {
        return;
    }
    let old = "policy_args";
    let name = if job.contains_key(old) {
        old
    } else {
        "policy_config_dict"
    };
    let config = job.entry(name).or_insert_with(|| Map::new().into());
    if let Value::Object(config) = config {
        config.insert(MODEL_PATH.to_owned(), checkpoint.into());
    }
}

fn mentions(value: &Value) -> bool {
    let mut is_mentioned = false;
    tree::each_text(value, &mut |text| {
        is_mentioned |= text.contains(PLACEHOLDER)
    });
    is_mentioned
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn template(jobs: Value) -> Result<Template, Refusal> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.json");
        std::fs::write(&path, json!({"jobs": jobs}).to_string()).unwrap();
        Template::read(&path)
    }

    fn job(name: &str, policy: &str, config: Value) -> Value {
        json!({"name": name, "arena_env_args": {"environment": "push"}, "num_episodes": 1,
               "policy_type": policy, "policy_config_dict": config})
    }

    #[test]
    fn a_checkpoint_replaces_the_model_path_of_every_policy_that_has_one() {
        let jobs = json!([
            job(
                "a",
                "gr00t",
                json!({"model_path": "old", "action_chunk_length": 4})
            ),
            job("b", "gr00t_closedloop", json!({})),
            job("c", "scripted", json!({})),
        ]);
        let filled = template(jobs).unwrap().filled(Path::new("/runs/step_5"));
        let config = |job: usize| &filled["jobs"][job]["policy_config_dict"];
        assert_eq!(
            config(0),
            &json!({"model_path": "/runs/step_5", "action_chunk_length": 4})
        );
        assert_eq!(config(1)["model_path"], "/runs/step_5");
        assert_eq!(config(2), &json!({}), "the expert stays as it is");
    }

    #[test]
    fn a_placeholder_is_replaced_and_nothing_else() {
        let python = json!({"factory": "act.py:make", "kwargs": {"weights": "{checkpoint}/w.bin"}});
        let jobs = json!([
            job("a", "python", python),
            job("b", "gr00t", json!({"model_path": "base"}))
        ]);
        let filled = template(jobs).unwrap().filled(Path::new("/runs/step_5"));
        let config = |job: usize| &filled["jobs"][job]["policy_config_dict"];
        assert_eq!(config(0)["kwargs"]["weights"], "/runs/step_5/w.bin");
        assert_eq!(config(1)["model_path"], "base");
    }

    #[test]
    fn jobs_that_would_not_run_are_refused_before_there_is_a_checkpoint() {
        let text = |jobs| template(jobs).unwrap_err().to_string();
        let none = text(json!([job("a", "scripted", json!({}))]));
        assert!(
            none.contains("no job has a policy with a checkpoint"),
            "{none}"
        );
        let mut unknown = job("a", "gr00t", json!({}));
        unknown["arena_env_args"]["environment"] = "pish".into();
        assert!(text(json!([unknown])).contains("did you mean `push`?"));
        for key in [json!("s3cret"), json!(7)] {
            let secret = text(json!([job("a", "gr00t", json!({"api_key": key}))]));
            let told = "jobs.json`: job 0 (a) field policy_config_dict.api_key contains a secret";
            assert!(
                secret.contains(told) && !secret.contains("s3cret"),
                "{secret}"
            );
        }
    }
}
