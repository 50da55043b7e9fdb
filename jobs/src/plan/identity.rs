//! The identity of a job: what its results depend on, as fields with JSON texts. Two jobs with the
//! same fields have the same episodes with the same results.
//!
//! The identity excludes how and where a job runs (`num_envs` of a job that ends by episodes,
//! `total_num_envs`, groups of environments, devices), what is filmed, and how its video file is
//! written.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::job::{Job, Length, Status};
use crate::latency::{Delay, Hold};
use crate::policies::{canonical_policy, is_of_place};

/// Fields that set how many episodes run; they change no episode's result.
const COVERAGE: &[&str] = &["num_episodes", "only", "status"];

/// What the results of a job depend on: dotted field names with their JSON texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(BTreeMap<String, String>);

impl Identity {
    /// Computes the identity of a job in a run with this base seed.
    pub fn of(job: &Job, base_seed: u64) -> Self {
        let mut fields = Self(BTreeMap::new());
        fields.value(
            "arena_env_args.environment",
            &job.environment.clone().into(),
        );
        if let Some(cameras) = job.enable_cameras {
            fields.value("arena_env_args.enable_cameras", &cameras.into());
        }
        fields.object("arena_env_args", &job.env_args);
        fields.value("policy_type", &canonical_policy(&job.policy_type).into());
        for (key, value) in job
            .policy_config
            .iter()
            .filter(|(key, _)| !is_of_place(&job.policy_type, key))
        {
            fields.value(&format!("policy_config_dict.{key}"), value);
        }
        fields.length(job);
        fields.rollout(job);
        fields.latency(job);
        if let Some(words) = &job.language_instruction {
            fields.value("language_instruction", &words.clone().into());
        }
        fields.object("variations", &job.variations);
        if let Some(variant) = &job.variant {
            // The name of the control is in the seeds of its variants.
            fields.value("variant.of", &variant.of.clone().into());
        }
        // A seed of the job's own also replaces its name in the seeds of its episodes, see
        // `crate::seed`.
        fields.text(
            "seed",
            job.seed
                .map_or_else(|| format!("--seed {base_seed}"), |seed| seed.to_string()),
        );
        if let Some(only) = &job.only {
            fields.text("only", only.to_string());
        }
        if job.status != Status::Pending {
            fields.value("status", &job.status.as_str().into());
        }
        fields
    }

    fn length(&mut self, job: &Job) {
        match job.length {
            Length::Episodes(episodes) => self.value("num_episodes", &episodes.into()),
            Length::Steps(steps) => {
                self.value("num_steps", &steps.into());
                // In a job of fixed steps, the number of environments is the number of its
                // episodes.
                self.value("num_envs", &job.num_envs.into());
            }
            Length::Policy => {}
        }
    }

    fn rollout(&mut self, job: &Job) {
        let rollout = &job.rollout;
        for (name, is_set) in [
            ("auto_reset", rollout.auto_reset),
            ("ignore_terminations", rollout.ignore_terminations),
        ] {
            if is_set {
                self.value(name, &true.into());
            }
        }
        if let Some(steps) = rollout.max_steps_per_rollout_epoch {
            self.value("max_steps_per_rollout_epoch", &steps.into());
        }
        if job.num_rebuilds > 1 {
            self.value("num_rebuilds", &job.num_rebuilds.into());
        }
    }

    /// A latency of nothing has the results of a job without one.
    fn latency(&mut self, job: &Job) {
        let Some(latency) = job.latency.filter(|latency| !latency.is_none()) else {
            return;
        };
        match latency.delay {
            Delay::Steps(steps) => self.value("latency.steps", &steps.into()),
            Delay::Ms(ms) => self.value("latency.ms", &ms.into()),
            Delay::Measured => self.value("latency.measured", &true.into()),
        }
        if latency.hold == Hold::Zero {
            self.value("latency.hold", &"zero".into());
        }
    }

    fn object(&mut self, place: &str, object: &Map<String, Value>) {
        object
            .iter()
            .for_each(|(key, value)| self.value(&format!("{place}.{key}"), value));
    }

    /// Adds the leaves of a value one by one, so that a difference names the nested field.
    fn value(&mut self, place: &str, value: &Value) {
        match value {
            Value::Object(object) if !object.is_empty() => self.object(place, object),
            Value::Array(items) if !items.is_empty() => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(nth, item)| self.value(&format!("{place}[{nth}]"), item));
            }
            leaf => self.text(place, leaf.to_string()),
        }
    }

    fn text(&mut self, place: &str, text: String) {
        self.0.insert(place.to_owned(), text);
    }

    /// Returns its fields and texts, without those that set how many episodes run.
    pub(super) fn without_coverage(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self
            .0
            .iter()
            .map(|(field, text)| (field.as_str(), text.as_str()));
        all.filter(|(field, _)| !COVERAGE.contains(field))
    }

    /// Returns its fields and texts, without those of the latency and those that set how many
    /// episodes run.
    pub fn without_latency(&self) -> Vec<(String, String)> {
        let all = self.without_coverage();
        let others = all.filter(|(field, _)| !field.starts_with("latency."));
        others
            .map(|(field, text)| (field.to_owned(), text.to_owned()))
            .collect()
    }

    /// Returns the fields that differ, sorted by name, with both values.
    pub fn differences(&self, now: &Self) -> Vec<FieldChange> {
        let mut names: Vec<&String> = self.0.keys().chain(now.0.keys()).collect();
        names.sort();
        names.dedup();
        let change = |name: &String| {
            let (before, after) = (self.0.get(name).cloned(), now.0.get(name).cloned());
            (before != after).then(|| FieldChange {
                field: name.clone(),
                before,
                after,
            })
        };
        names.into_iter().filter_map(change).collect()
    }
}

/// A field of a job's identity that differs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldChange {
    /// Dotted name of the field.
    pub field: String,
    /// Its JSON text in the run so far; `None` if the field was missing.
    pub before: Option<String>,
    /// Its JSON text now; `None` if the field is missing now.
    pub after: Option<String>,
}

impl FieldChange {
    /// Returns whether the field only sets how many episodes run, so that the finished ones stay
    /// valid. If `num_episodes` appears or disappears, the job has another kind of length, which is
    /// not such a change.
    pub fn is_coverage(&self) -> bool {
        let is_swapped =
            self.field == "num_episodes" && (self.before.is_none() || self.after.is_none());
        COVERAGE.contains(&self.field.as_str()) && !is_swapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{job, jobs};
    use serde_json::json;

    fn between(before: &Job, after: &Job) -> Vec<FieldChange> {
        Identity::of(before, 1).differences(&Identity::of(after, 1))
    }

    fn differences(before: Value, after: Value) -> Vec<String> {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let line = |c: FieldChange| format!("{} {} {}", c.field, text(c.before), text(c.after));
        let found = between(&job(before), &job(after));
        found.into_iter().map(line).collect()
    }

    #[test]
    fn where_and_how_a_job_runs_is_no_part_of_it() {
        let here = json!({"arena_env_args": {"environment": "reach", "num_envs": 4},
                          "policy_type": "gr00t_closedloop", "policy_config_dict": {"policy_device": "cuda:0", "x": 1}});
        let there = json!({"total_num_envs": 8, "pipeline_stage_num": 3, "group_size": 2,
                           "video_cfg": {"save_video": false}, "policy_type": "gr00t", "policy_args": {"x": 1}});
        assert_eq!(differences(here, there), Vec::<String>::new());
    }

    #[test]
    fn a_policy_server_may_move_and_its_policy_may_not_change() {
        let job =
            |config: Value| json!({"policy_type": "pi0_remote", "policy_config_dict": config});
        let here =
            job(json!({"remote_host": "gpu7", "remote_port": 8000, "policy_variant": "pi0"}));
        let there =
            job(json!({"remote_host": "gpu8", "remote_retry_s": 9, "policy_variant": "pi0"}));
        assert_eq!(differences(here, there.clone()), Vec::<String>::new());
        let other = job(json!({"policy_variant": "pi05"}));
        let wanted = ["policy_config_dict.policy_variant \"pi0\" \"pi05\""];
        assert_eq!(differences(there, other), wanted);
    }

    #[test]
    fn a_difference_is_named_where_it_is_and_the_order_of_keys_is_none() {
        let with = |x: i32, y: Value| json!({"variations": {"a": {"x": x, "y": y}}});
        let more = [
            "variations.a.x 1 2",
            "variations.a.y[1] 2 3",
            "variations.a.y[2] - 4",
        ];
        let found = differences(with(1, json!([1, 2])), with(2, json!([1, 3, 4])));
        assert_eq!(found, more);
        let spelt_out = json!({"variations": {"a": {"y": [1], "x": 1}}, "seed": 1});
        let shown = differences(with(1, json!([1])), spelt_out);
        assert_eq!(shown, ["seed --seed 1 1"]);
    }

    #[test]
    fn the_control_is_a_part_of_a_variant_and_its_groups_are_not() {
        let variant = |control: &str, group: &str| {
            let variations = json!([{"name": "b", "group": group, "x": 1}]);
            jobs([json!({"name": control, "variations": variations})]).remove(1)
        };
        assert_eq!(between(&variant("a", "light"), &variant("a", "camera")), []);
        let found = between(&variant("a", "light"), &variant("c", "light"));
        assert_eq!((found.len(), &*found[0].field), (1, "variant.of"));
    }

    #[test]
    fn environments_are_a_part_of_a_job_in_steps() {
        let with = |envs: u64| {
            let args = json!({"environment": "reach", "num_envs": envs});
            json!({"num_episodes": null, "num_steps": 9, "arena_env_args": args})
        };
        assert_eq!(differences(with(1), with(2)), ["num_envs 1 2"]);
    }

    #[test]
    fn another_latency_is_another_job_and_none_is_that_of_a_job_without() {
        let with = |latency: Value| json!({ "latency": latency });
        let [none, slow] = [Value::Null, json!({"steps": 2})].map(with);
        assert!(differences(none.clone(), with(json!({"steps": 0}))).is_empty());
        let shown = differences(none, with(json!({"ms": 50})));
        assert_eq!(shown, ["latency.ms - 50.0"]);
        let found = differences(slow, with(json!({"steps": 3, "hold": "zero"})));
        assert_eq!(found, ["latency.hold - \"zero\"", "latency.steps 2 3"]);
    }

    #[test]
    fn another_choice_or_number_of_episodes_is_coverage_and_another_kind_of_length_is_not() {
        let is_coverage = |before: &Job, after: &Job| {
            let found = between(before, after);
            assert!(!found.is_empty());
            found.iter().all(FieldChange::is_coverage)
        };
        let (three, open) = (job(json!({})), job(json!({"num_episodes": null})));
        let only = Some("0-2".parse().unwrap());
        assert!(is_coverage(
            &three,
            &Job {
                only,
                ..three.clone()
            }
        ));
        let more = job(json!({"num_episodes": 9, "status": "completed"}));
        assert!(is_coverage(&three, &more));
        let steps = job(json!({"num_episodes": null, "num_steps": 3}));
        assert!(!is_coverage(&three, &steps));
        assert!(!is_coverage(&open, &three));
    }
}
