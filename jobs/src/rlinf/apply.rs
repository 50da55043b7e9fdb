//! Applies a configuration: creates its jobs, or changes the jobs of a jobs file.

use serde_json::{Map, Value, json};

use crate::policies::{PolicyType, canonical_policy};
use crate::rlinf::Config;

impl Config {
    /// Returns the jobs in the form of a jobs file: those of `jobs` (a parsed jobs file), otherwise
    /// the list of the configuration, otherwise the single job that it describes, named after the
    /// file that names its environment. Returns `None` if there are none.
    pub fn jobs(&self, jobs: Option<Value>) -> Option<Value> {
        let list = self.jobs.clone().map(|list| json!({"jobs": list}));
        let mut file = jobs.or(list).or_else(|| {
            self.has_jobs()
                .then(|| json!({"jobs": [{"name": self.name()}]}))
        })?;
        let entries = file.get_mut("jobs").and_then(Value::as_array_mut);
        for entry in entries
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            self.apply(entry);
        }
        Some(file)
    }

    /// Returns the stem of the last file that names an environment (`behavior` for
    /// `behavior.yaml`), otherwise of the last file. So an additional file that only says where to
    /// run does not rename the job and its videos.
    pub(crate) fn name(&self) -> String {
        let file = self.namesake.as_ref().or(self.files.last());
        file.and_then(|file| file.file_stem())
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    fn apply(&self, job: &mut Map<String, Value>) {
        self.fill_in(job);
        if self.over.contains_key("total_num_envs")
            && let Some(env) = job.get_mut("arena_env_args").and_then(Value::as_object_mut)
        {
            env.shift_remove("num_envs");
        }
        let auto_reset =
            self.over.get("auto_reset").or(job.get("auto_reset")) == Some(&Value::Bool(true));
        let sets_length = self.over.contains_key("rollout_epoch")
            || (auto_reset && self.over.contains_key("max_steps_per_rollout_epoch"));
        if sets_length {
            job.shift_remove("num_episodes");
            job.shift_remove("num_steps");
        }
        for (field, value) in &self.over {
            match (job.get_mut(field), value) {
                (Some(Value::Object(own)), Value::Object(value)) => own.extend(value.clone()),
                _ => drop(job.insert(field.clone(), value.clone())),
            }
        }
    }

    /// Sets the fields that a job lacks. Arguments are only set together with the environment or
    /// policy that they belong to.
    fn fill_in(&self, job: &mut Map<String, Value>) {
        if let Some(policy) = self.under.get("policy_type") {
            job.entry("policy_type").or_insert(policy.clone());
        }
        if let Some(ours) = self.under.get("arena_env_args") {
            let own = job.entry("arena_env_args").or_insert_with(|| json!({}));
            let name = own.get("environment").filter(|name| !name.is_null());
            let named = self.environment();
            if name.is_none() || named.is_none() || name == named {
                fill(own, ours);
            }
        }
        let Some(ours) = self.under.get("policy_config_dict") else {
            return;
        };
        // Either may use another name of the same policy.
        let canonical = |name: &Value| name.as_str().map(canonical_policy).map(str::to_owned);
        let policy = job.get("policy_type").and_then(canonical);
        let is_meant = match self.under.get("policy_type") {
            Some(named) => policy == canonical(named),
            None => policy
                .and_then(|policy| PolicyType::of(&policy))
                .is_some_and(|policy| policy.row().has_checkpoint),
        };
        if is_meant {
            let is_old = job.contains_key("policy_args");
            let name = ["policy_config_dict", "policy_args"][usize::from(is_old)];
            fill(job.entry(name).or_insert_with(|| json!({})), ours);
        }
    }
}

/// Adds the missing fields.
fn fill(own: &mut Value, ours: &Value) {
    let (Value::Object(own), Value::Object(ours)) = (own, ours) else {
        return;
    };
    for (key, value) in ours {
        own.entry(key).or_insert(value.clone());
    }
}
