//! The identity of a job: what its results depend on, as fields with JSON texts. Two jobs with the
//! same fields have the same episodes with the same results. A hash of them, its fingerprint, and the
//! id of the run tell which journal lines are results of a plan.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::{Value, json};

use crate::job::{Job, Length};
use crate::journal::{Accepted, AcceptedJob, Provenance, Stamp, Stamps};
use crate::plan::RunPlan;
use crate::plan::difference::Difference;
use crate::policies::{canonical_policy, is_of_place};
use crate::{file, sha256, tree};

/// Fields that set how many episodes run; they change no episode's result.
const COVERAGE: &[&str] = &["num_episodes", "only", "status"];

/// What the results of a job depend on: dotted field names with their JSON texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity(BTreeMap<String, String>);

/// Fields of an entry that no result depends on: how and where a job runs, what is filmed, and what
/// the job is called or comes from.
const NO_PART: &[&str] = &[
    "name",
    "arena_env_args.num_envs",
    "total_num_envs",
    "pipeline_stage_num",
    "video_cfg",
    "suite",
    "variant.name",
    "variant.groups",
];

impl Identity {
    /// Computes the identity of a job in a run with this base seed: the leaves of its entry, without
    /// those that no result depends on.
    pub fn of(job: &Job, base_seed: u64) -> Self {
        let mut entry = Value::Object(file::entry(job));
        for place in NO_PART {
            tree::take(&mut entry, place);
        }
        let Value::Object(mut entry) = entry else {
            return Self(BTreeMap::new());
        };
        let policy = canonical_policy(&job.policy_type);
        entry.insert("policy_type".to_owned(), policy.into());
        if let Some(Value::Object(config)) = entry.get_mut("policy_config_dict") {
            config.retain(|setting, _| !is_of_place(&job.policy_type, setting));
        }
        if job.latency.is_some_and(|latency| latency.is_none()) {
            entry.shift_remove("latency");
        }
        if let Length::Steps(_) = job.length {
            // The number of environments is the number of the episodes.
            entry.insert("num_envs".to_owned(), job.num_envs.into());
        }
        let mut fields = Self(BTreeMap::new());
        // What a policy has only for its place leaves an empty object.
        for (field, value) in entry.iter().filter(|(_, value)| **value != json!({})) {
            fields.add(field, value);
        }
        // A seed of the job's own also replaces its name in the seeds of its episodes, see
        // `crate::seed`.
        if job.seed.is_none() {
            fields.text("seed", format!("--seed {base_seed}"));
        }
        if let Some(only) = &job.only {
            fields.text("only", only.to_string());
        }
        fields
    }

    /// Adds the leaves of a value one by one, so that a difference names the nested field.
    fn add(&mut self, place: &str, value: &Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, field) in fields {
                    self.add(&format!("{place}.{name}"), field);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                for (nth, item) in items.iter().enumerate() {
                    self.add(&format!("{place}[{nth}]"), item);
                }
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
        let names: BTreeSet<&String> = self.0.keys().chain(now.0.keys()).collect();
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

/// Length of a fingerprint in hex digits: 64 bits.
const LETTERS: usize = 16;

/// Returns the fingerprint of a job in a run with this base seed, as 16 hex digits: a hash of what
/// its results depend on. The number of episodes is not part of it.
pub fn fingerprint(job: &Job, base_seed: u64) -> String {
    let mut text = serde_json::Value::from(job.name.as_str()).to_string();
    for (field, value) in Identity::of(job, base_seed).without_coverage() {
        text += &format!("\n{field}={value}");
    }
    sha256::of(text)[..LETTERS].to_owned()
}

impl RunPlan {
    /// Returns the provenance in this plan, completed as it would be if the plan was written now.
    pub(crate) fn known_by(&self) -> Provenance {
        let mut known = self.provenance.clone();
        // No line has the id of a merged folder until that folder is continued.
        if known.runs.is_empty() && !self.id.is_empty() {
            known.runs.push(self.id.clone());
        }
        for job in &self.jobs {
            let of_job = known.jobs.entry(job.name.clone()).or_default();
            if of_job.is_empty() {
                of_job.push(fingerprint(job, self.seed));
            }
        }
        known
    }

    /// Returns which journal lines are results of this run.
    pub fn accepted(&self) -> Accepted {
        let known = self.known_by();
        let mut runs: HashSet<_> = known.runs.into_iter().collect();
        if !self.id.is_empty() {
            runs.insert(self.id.clone());
        }
        let accepted = |job: &Job| AcceptedJob {
            index: job.index,
            fingerprints: known.jobs.get(&job.name).cloned().unwrap_or_default(),
            planned: job.episodes().map(|count| job.selection(count)),
        };
        let jobs = self.jobs.iter();
        let jobs = jobs.map(|job| (job.name.clone(), accepted(job)));
        Accepted {
            runs,
            jobs: Some(jobs.collect()),
        }
    }

    /// Returns the stamps that a rank of `launch` puts on its lines.
    pub fn stamps(&self, launch: Option<&str>) -> Stamps {
        let known = self.known_by();
        let first = |job: &Job| {
            Some((
                job.name.clone(),
                known.jobs.get(&job.name)?.first()?.clone(),
            ))
        };
        Stamps {
            plain: Stamp {
                run: Some(self.id.clone().into()).filter(|id: &Cow<str>| !id.is_empty()),
                launch: launch.map(|id| id.to_owned().into()),
                fingerprint: None,
            },
            jobs: self.jobs.iter().filter_map(first).collect(),
        }
    }

    /// Returns whether the plan already lists the run id and fingerprints of the lines that are
    /// written now; adds them if not.
    pub(super) fn knows_its_lines(&mut self) -> bool {
        let mut known = self.known_by();
        if !self.id.is_empty() && !known.runs.contains(&self.id) {
            known.runs.push(self.id.clone());
        }
        let is_known = known == self.provenance;
        self.provenance = known;
        is_known
    }

    /// Takes over the fingerprints of `found` for the jobs that stay.
    pub(super) fn known_as(mut self, found: &Self, difference: &Difference) -> Self {
        let staying = difference.jobs.iter().filter(|job| job.stays());
        let staying: HashSet<&str> = staying.map(|job| job.name.as_str()).collect();
        self.provenance = found.known_by();
        self.provenance
            .jobs
            .retain(|name, _| staying.contains(name.as_str()));
        self.provenance = self.known_by();
        self
    }
}

/// Returns the provenance of several plans together.
pub fn joined<'a>(plans: impl Iterator<Item = &'a RunPlan>) -> Provenance {
    let mut joined = Provenance::default();
    for plan in plans {
        let known = plan.known_by();
        joined.runs.extend(known.runs);
        for (name, mut of_job) in known.jobs {
            joined.jobs.entry(name).or_default().append(&mut of_job);
        }
    }
    for list in joined.jobs.values_mut().chain([&mut joined.runs]) {
        list.sort();
        list.dedup();
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{self, job};
    use crate::settings;

    fn between(before: &Job, after: &Job) -> Vec<FieldChange> {
        Identity::of(before, 1).differences(&Identity::of(after, 1))
    }

    fn lines(before: &Job, after: &Job) -> Vec<String> {
        let text = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let line = |c: FieldChange| format!("{} {} → {}", c.field, text(c.before), text(c.after));
        between(before, after).into_iter().map(line).collect()
    }

    #[test]
    fn results_depend_on_the_fields_that_an_identity_has() {
        rig::cases::check("src/plan/identity.txt", |changes| {
            let entry = rig::cases::changed(&samples::entry(json!({})), changes);
            let now = file::jobs(&[entry]).unwrap_or_else(|err| panic!("{changes}: {err}"));
            lines(&job(json!({})), &now[0]).join("\n")
        });
        let all = include_str!("identity.txt");
        let mut fields = settings::names::<file::Entry>().into_iter();
        assert_eq!(fields.find(|name| !all.contains(name)), None);
    }

    #[test]
    fn a_difference_is_named_where_it_is_and_the_order_of_keys_is_none() {
        let with = |x: i32, y: Value| job(json!({"variations": {"a": {"x": x, "y": y}}}));
        let more = [
            "variations.a.x 1 → 2",
            "variations.a.y[1] 2 → 3",
            "variations.a.y[2] - → 4",
        ];
        let found = lines(&with(1, json!([1, 2])), &with(2, json!([1, 3, 4])));
        assert_eq!(found, more);
        let spelt_out = json!({"variations": {"a": {"y": [1], "x": 1}}, "seed": 1});
        let shown = lines(&with(1, json!([1])), &job(spelt_out));
        assert_eq!(shown, ["seed --seed 1 → 1"]);
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

    fn of(words: &str, episodes: u64, seed: u64) -> String {
        let fields = json!({"num_episodes": episodes, "language_instruction": words});
        fingerprint(&job(fields), seed)
    }

    #[test]
    fn a_fingerprint_follows_from_what_results_depend_on_and_stays_the_same() {
        // If this value changes, every run that was begun before becomes a foreign one, unless its
        // plan lists its own fingerprints.
        assert_eq!(of("touch", 4, 42), "86da9cd685da7334");
        assert_eq!(of("touch", 4, 42), of("touch", 9, 42));
        assert_ne!(of("touch", 4, 42), of("touch it", 4, 42));
        assert_ne!(of("touch", 4, 42), of("touch", 4, 7));
    }
}
