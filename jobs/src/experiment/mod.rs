//! Reads an Experiment of Isaac Lab-Arena, the YAML of its `experiment_runner`, as the jobs file
//! that it means.
//!
//! ```text
//! file ─► tree ─► shared.<path>=<value> ─► shared under each run ─► runs.<name>.<path>=<value>
//!                                              └─► references ─► one job per run ─► jobs file
//! ```
//! The correspondence of fields is that of Arena's converter from jobs files to Experiments
//! (isaaclab_arena/evaluation/legacy_eval_config.py of 0bfff155); the rules of `shared`, of
//! references and of the command line are those of isaaclab_arena/hydra/typed_experiment_loader.py
//! of 0fc852b8. Older forms are read, too: `runs` as a list whose entries have a `name`, and the
//! names `experiments` and `rollout`.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::experiment::environment::{Environment, refuse_recorded};
use crate::refusal::{LIKE_NAME, Refusal};
use crate::{installed, settings, tree};

mod change;
mod environment;
mod runs;
mod value;

pub use change::Change;

/// An Experiment that was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Its runs in the form of a jobs file, in the order of the file.
    pub jobs: Value,
    /// Dotted names of the settings without effect, each once, without the name of its run.
    pub unused: Vec<String>,
}

/// Returns whether a jobs file is an Experiment, which its ending says, as in Arena.
pub fn is_experiment(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| ["yaml", "yml"].contains(&ending.to_lowercase().as_str()))
}

impl Experiment {
    /// Reads a file and applies the changes of the command line. `variable` looks up
    /// `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn read(
        path: &Path,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        Self::parse(path, &tree::read(path)?, changes, variable)
    }

    /// Does the same for a text that was already read.
    ///
    /// # Errors
    /// Refuses the first problem found.
    pub fn parse(
        path: &Path,
        text: &str,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let tree = tree::parse(path, text)?;
        Self::of_tree(tree, changes, variable)
            .map_err(|refusal| Refusal::at(tree::quoted(path), refusal))
    }

    fn of_tree(
        tree: Value,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let mut parts = runs::split(&tree)?;
        for change in changes.iter().filter(|change| change.is_shared()) {
            change.apply(&mut parts.shared);
        }
        let mut unused = runs::unread(&parts)?;
        let mut runs = runs::with_shared(&parts)?;
        for change in changes.iter().filter(|change| !change.is_shared()) {
            runs::change(&mut runs, change)?;
        }
        let shared = json!({ "shared": parts.shared });
        let resolver = tree::Resolver::new(&shared, variable, true);
        let mut jobs = Vec::new();
        for (name, run) in &runs {
            let run = resolver.resolve(run);
            runs::refuse_unresolved(name, &run)?;
            let fields = runs::object(&format!("runs.{name}"), &run)?;
            jobs.push(job(name, fields, &mut unused)?);
        }
        let mut jobs = json!({ "jobs": jobs });
        installed::find_all(&mut jobs);
        Ok(Self { jobs, unused })
    }
}

/// A run. Numbers may be written as texts, and the job checks them.
#[derive(Deserialize, JsonSchema)]
struct Run {
    /// `type`, and what it needs
    environment: Environment,
    environment_builder: Option<Map<String, Value>>,
    /// `type`, and its settings
    policy: Policy,
    rollout_limit: Option<Map<String, Value>>,
    rollout: Option<Map<String, Value>>,
    num_rebuilds: Option<Value>,
    variations: Option<Map<String, Value>>,
    labels: Option<Value>,
    /// Files with the variations of episodes that are to be repeated.
    recorded_variation_samples_paths: Option<Value>,
}

#[derive(Deserialize, JsonSchema)]
struct Policy {
    r#type: String,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

/// How long a run is.
#[derive(Deserialize, JsonSchema)]
struct Limit {
    #[schemars(range(min = 1))]
    num_episodes: Option<u64>,
    #[schemars(range(min = 1))]
    num_steps: Option<u64>,
}

/// The names of settings without effect, each once.
type Unused<'a> = &'a mut Vec<String>;

/// Converts a run, and adds the names of its settings without effect.
fn job(name: &str, run: &Map<String, Value>, unused: Unused) -> Result<Value, Refusal> {
    let place = format!("runs.{name}");
    let (run, foreign): (Run, _) = settings::read_among(&place, run, LIKE_NAME)?;
    let recorded = run.recorded_variation_samples_paths.as_ref();
    refuse_recorded(
        &format!("{place}.recorded_variation_samples_paths"),
        recorded,
    )?;
    let mut job = Map::new();
    job.insert("name".to_owned(), name.into());
    let environment = run.environment.args(&format!("{place}.environment"))?;
    let mut variations = run.variations.unwrap_or_default();
    environment.drop_foreign(&mut variations, unused);
    let builder = run.environment_builder.unwrap_or_default();
    environment.build(&place, builder, &mut job, unused)?;
    job.insert("policy_type".to_owned(), run.policy.r#type.into());
    job.insert("policy_config_dict".to_owned(), run.policy.settings.into());
    for (section, limit) in [
        ("rollout_limit", run.rollout_limit),
        ("rollout", run.rollout),
    ] {
        if let Some(limit) = limit {
            length(&format!("{place}.{section}"), limit, &mut job)?;
        }
    }
    if let Some(rebuilds) = run.num_rebuilds {
        job.insert("num_rebuilds".to_owned(), number(&rebuilds));
    }
    if !variations.is_empty() {
        job.insert("variations".to_owned(), variations.into());
    }
    if run.labels.is_some() {
        note(unused, "labels".to_owned());
    }
    foreign.into_iter().for_each(|name| note(unused, name));
    Ok(Value::Object(job))
}

/// Returns a number that is written as a text, which Hydra converts in the fields of a run that are
/// numbers; any other value is returned as it is.
fn number(value: &Value) -> Value {
    let number = value
        .as_str()
        .and_then(|text| text.trim().parse::<u64>().ok());
    number.map_or_else(|| value.clone(), Value::from)
}

fn note(unused: Unused, name: String) {
    if !unused.contains(&name) {
        unused.push(name);
    }
}

fn length(
    place: &str,
    mut limit: Map<String, Value>,
    job: &mut Map<String, Value>,
) -> Result<(), Refusal> {
    limit.values_mut().for_each(|value| *value = number(value));
    let limit: Limit = settings::read(place, &limit)?;
    if limit.num_episodes.is_some() && limit.num_steps.is_some() {
        let reason = "num_episodes and num_steps are both given; only one of them can end a run";
        return Err(Refusal::at(place, reason));
    }
    for (field, length) in [
        ("num_episodes", limit.num_episodes),
        ("num_steps", limit.num_steps),
    ] {
        if let Some(length) = length {
            job.insert(field.to_owned(), length.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
