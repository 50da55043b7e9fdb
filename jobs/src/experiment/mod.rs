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

use std::collections::BTreeSet;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::experiment::environment::{Environment, refuse_recorded};
use crate::file::given;
use crate::refusal::{LIKE_NAME, Refusal, most_similar};
use crate::settings::names;
use crate::tree::{MAX_RESOLVED, object};
use crate::{installed, settings, tree};

mod change;
mod environment;

pub use change::Change;

/// Number of levels on which names of variations are read as paths; Arena's have four.
const LEVELS: usize = 8;

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
    /// Parses the text of a file and applies the changes of the command line. `variable` looks up
    /// `${oc.env:NAME}`.
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
        Self::of_tree(tree, changes, variable).map_err(|refusal| Refusal::in_file(path, refusal))
    }

    fn of_tree(
        tree: Value,
        changes: &[Change],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, Refusal> {
        let mut parts = split(&tree)?;
        for change in changes {
            if let Some(path) = change.shared() {
                change.apply(&mut parts.shared, path);
            }
        }
        let mut unused = unread(&parts)?;
        let mut runs = with_shared(&parts)?;
        for change in changes {
            if let Some((name, path)) = change.run() {
                change_run(&mut runs, change, name, path)?;
            }
        }
        let shared = json!({ "shared": parts.shared });
        let resolver = tree::Resolver::new(&shared, variable, true);
        let mut jobs = Vec::new();
        for (name, run) in &runs {
            let run = resolver.resolve(run);
            refuse_unresolved(name, &run)?;
            let fields = object(&format!("runs.{name}"), &run)?;
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
#[derive(Serialize, Deserialize, JsonSchema)]
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
    let environment = run.environment.args(&format!("{place}.environment"))?;
    let mut variations = run.variations.unwrap_or_default();
    environment.drop_foreign(&mut variations, unused);
    let builder = run.environment_builder.unwrap_or_default();
    let mut job = given(json!({
        "name": name,
        "policy_type": run.policy.r#type,
        "policy_config_dict": run.policy.settings,
        "num_rebuilds": run.num_rebuilds.as_ref().map(number),
        "variations": (!variations.is_empty()).then_some(variations),
    }));
    environment.build(&place, builder, &mut job, unused)?;
    for (section, limit) in [
        ("rollout_limit", run.rollout_limit),
        ("rollout", run.rollout),
    ] {
        if let Some(limit) = limit {
            job.extend(length(&format!("{place}.{section}"), limit)?);
        }
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

fn length(place: &str, mut limit: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    limit.values_mut().for_each(|value| *value = number(value));
    let limit: Limit = settings::read(place, &limit)?;
    if limit.num_episodes.is_some() && limit.num_steps.is_some() {
        let reason = "num_episodes and num_steps are both given; only one of them can end a run";
        return Err(Refusal::at(place, reason));
    }
    Ok(given(json!(limit)))
}

/// The two parts of an Experiment.
struct Parts {
    /// Values for all runs, an object.
    shared: Value,
    /// Runs by name, in file order, at least one.
    runs: Map<String, Value>,
}

#[derive(Deserialize, JsonSchema)]
struct Top {
    runs: Option<Value>,
    /// The name of `runs` in older files.
    #[schemars(extend("unused" = true))]
    experiments: Option<Value>,
    shared: Option<Map<String, Value>>,
}

/// Takes the two parts out of a file.
fn split(tree: &Value) -> Result<Parts, Refusal> {
    let given = object("top level", tree)?;
    let mut names = given.iter().filter(|(_, value)| !value.is_null());
    if !names.any(|(name, _)| name == "experiments" || similar_to(name, &["runs"])) {
        let reason = "it is missing, and every Experiment of Arena has it; for RLinf's YAML, use \
                      --config instead";
        return Err(Refusal::at("runs", reason));
    }
    let top: Top = settings::read("", given)?;
    if top.runs.is_some() && top.experiments.is_some() {
        let reason = "it is the old name of `runs`, which is also given";
        return Err(Refusal::at("experiments", reason));
    }
    let parts = Parts {
        shared: top.shared.unwrap_or_default().into(),
        runs: by_name(top.runs.or(top.experiments).unwrap_or_default())?,
    };
    match parts.runs.is_empty() {
        true => Err(Refusal::at("runs", "there are none, expected at least one")),
        false => Ok(parts),
    }
}

/// A run of the list of older files.
#[derive(Deserialize, JsonSchema)]
struct Named {
    name: String,
    #[serde(flatten)]
    run: Map<String, Value>,
}

/// Returns the runs by name: a mapping, or the list of older files.
fn by_name(runs: Value) -> Result<Map<String, Value>, Refusal> {
    let entries = match runs {
        Value::Object(runs) => return named(runs),
        Value::Array(entries) => entries,
        _ => return Err(Refusal::at("runs", "expected a mapping from names to runs")),
    };
    let mut runs = Map::new();
    for (index, entry) in entries.into_iter().enumerate() {
        let place = format!("runs[{index}]");
        let Named { name, run } = settings::read(&place, object(&place, &entry)?)?;
        if runs.contains_key(&name) {
            let reason = format!("`{name}` is also the name of another run");
            return Err(Refusal::at(place, reason));
        }
        runs.insert(name, run.into());
    }
    Ok(runs)
}

fn named(runs: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let of_run = |(name, run): (String, Value)| {
        let place = format!("runs.{name}");
        let run = match run {
            Value::Null => Map::new(),
            run => object(&place, &run)?.clone(),
        };
        for field in ["name", "shared"] {
            if run.contains_key(field) {
                let reason = "the key in `runs` is the name of a run, and shared values are \
                              beside `runs`";
                return Err(Refusal::at(format_args!("{place}.{field}"), reason));
            }
        }
        Ok((name, run.into()))
    };
    runs.into_iter().map(of_run).collect()
}

/// Refuses shared values that no run has use for if they resemble one that runs have; returns the
/// dotted names of the others. A value that a reference names may have any name.
fn unread(parts: &Parts) -> Result<Vec<String>, Refusal> {
    let mut named = BTreeSet::new();
    for tree in parts.runs.values().chain([&parts.shared]) {
        tree::each_reference(tree, &mut |reference| {
            named.insert(root(reference));
        });
    }
    let known = names::<Run>();
    let mut unused = Vec::new();
    let shared = parts.shared.as_object().into_iter().flatten();
    for (key, _) in shared.filter(|(key, _)| !known.contains(&key.as_str())) {
        if named.contains(key) {
            continue;
        }
        if similar_to(key, &known) {
            return Err(Refusal::unknown("shared", "field", key, &known));
        }
        unused.push(format!("shared.{key}"));
    }
    Ok(unused)
}

/// Returns the name below `shared` that a reference begins with: `a` of `${shared.a.b}`.
fn root(reference: &str) -> String {
    let below = reference.strip_prefix("${shared.").unwrap_or_default();
    let end = below.find(['.', '}']).unwrap_or(below.len());
    below[..end].to_owned()
}

/// Returns the runs, each with the shared values that it does not set itself.
fn with_shared(parts: &Parts) -> Result<Map<String, Value>, Refusal> {
    let mut shared = parts.shared.clone();
    if let Value::Object(shared) = &mut shared {
        let known = names::<Run>();
        shared.retain(|key, _| known.contains(&key.as_str()));
    }
    let size = shared.to_string().len();
    if size.saturating_mul(parts.runs.len()) > MAX_RESOLVED {
        let count = parts.runs.len();
        let reason =
            format!("its {size} bytes in {count} runs are more than {MAX_RESOLVED} bytes of jobs");
        return Err(Refusal::at("shared", reason));
    }
    let shared = with_nested_variations(shared);
    let of_run = |(name, run): (&String, &Value)| {
        let run = tree::merge(shared.clone(), with_nested_variations(run.clone()));
        (name.clone(), run)
    };
    Ok(parts.runs.iter().map(of_run).collect())
}

fn with_nested_variations(mut run: Value) -> Value {
    if let Some(variations) = run.get_mut("variations") {
        *variations = tree::nested(variations.take(), LEVELS);
    }
    run
}

/// Applies a change at a path of the run that it names, or removes that run.
fn change_run(
    runs: &mut Map<String, Value>,
    change: &Change,
    name: &str,
    path: Option<&str>,
) -> Result<(), Refusal> {
    let Some(run) = runs.get_mut(name) else {
        let known: Vec<_> = runs.keys().map(String::as_str).collect();
        return Err(Refusal::unknown(change.name(), "run", name, &known));
    };
    if let Some(path) = path {
        change.apply(run, path);
        *run = with_nested_variations(run.take());
        return Ok(());
    }
    runs.shift_remove(name);
    match runs.is_empty() {
        true => {
            let reason = "it removes the last run, expected at least one";
            Err(Refusal::at(change.name(), reason))
        }
        false => Ok(()),
    }
}

/// Refuses references that lead nowhere.
fn refuse_unresolved(name: &str, run: &Value) -> Result<(), Refusal> {
    let mut first = None;
    tree::each_reference(run, &mut |reference| {
        first.get_or_insert_with(|| reference.to_owned());
    });
    match first {
        Some(reference) => {
            let reason = format!("`{reference}` cannot be resolved");
            Err(Refusal::at(format_args!("runs.{name}"), reason))
        }
        None => Ok(()),
    }
}

fn similar_to(key: &str, known: &[&str]) -> bool {
    most_similar(key, known.iter().copied(), LIKE_NAME).is_some()
}

#[cfg(test)]
mod tests;
