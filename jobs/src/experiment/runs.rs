//! The runs of an Experiment, each with the shared values under its own.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::experiment::Run;
use crate::experiment::change::Change;
use crate::refusal::{LIKE_NAME, Refusal, most_similar};
use crate::settings::{self, names};
use crate::tree;
use crate::tree::MAX_RESOLVED;

/// The two parts of an Experiment.
pub(super) struct Parts {
    /// Values for all runs, an object.
    pub(super) shared: Value,
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
pub(super) fn split(tree: &Value) -> Result<Parts, Refusal> {
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

pub(super) fn object<'a>(place: &str, value: &'a Value) -> Result<&'a Map<String, Value>, Refusal> {
    let object = value.as_object();
    object.ok_or_else(|| Refusal::found(place, value, "expected an object"))
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
        _ => {
            let reason = "expected a mapping from names to runs";
            return Err(Refusal::at("runs", reason));
        }
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
pub(super) fn unread(parts: &Parts) -> Result<Vec<String>, Refusal> {
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
pub(super) fn with_shared(parts: &Parts) -> Result<Map<String, Value>, Refusal> {
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
        *variations = tree::nested(variations.take());
    }
    run
}

/// Applies a change to the run that it names, or removes that run.
pub(super) fn change(runs: &mut Map<String, Value>, change: &Change) -> Result<(), Refusal> {
    let name = change.run().unwrap_or_default();
    let Some(run) = runs.get_mut(name) else {
        let known: Vec<_> = runs.keys().map(String::as_str).collect();
        return Err(Refusal::unknown(change.name(), "run", name, &known));
    };
    if !change.removes_run() {
        change.apply(run);
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
pub(super) fn refuse_unresolved(name: &str, run: &Value) -> Result<(), Refusal> {
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

pub(super) fn similar_to(key: &str, known: &[&str]) -> bool {
    most_similar(key, known.iter().copied(), LIKE_NAME).is_some()
}
