//! The runs of an Experiment, each with the shared values under its own.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::experiment::change::Change;
use crate::experiment::{MAX_BYTES, dotted, run};
use crate::fields::{FieldError, FileFields};
use crate::similar::{self, most_similar};
use crate::tree::{self, references};

/// The two parts of an Experiment.
pub(super) struct Parts {
    /// Values for all runs, an object.
    pub(super) shared: Value,
    /// Runs by name, in file order, at least one.
    runs: Map<String, Value>,
}

/// Takes the two parts out of a file.
pub(super) fn split(mut tree: Value) -> Result<Parts, FieldError> {
    let mut top = FileFields::new("top level", &tree)?;
    top.know(&["runs", "shared"]);
    let name = if top.has("runs") || !top.has("experiments") {
        "runs"
    } else {
        "experiments"
    };
    let is_missing = !top.has(name);
    top.take(name);
    top.take("shared");
    if is_missing && !top.left().any(|key| similar_to(key, &["runs"])) {
        let reason = "it is missing, and every Experiment of Arena has it; for RLinf's YAML, use \
                      --config instead";
        return Err(top.refuse(name, reason));
    }
    top.finish(&["runs", "shared"])?;
    let runs = tree::take(&mut tree, &[name]).unwrap_or_default();
    let shared = tree::take(&mut tree, &["shared"]).unwrap_or_default();
    let parts = Parts {
        shared: object("shared", shared)?,
        runs: by_name(runs)?,
    };
    match parts.runs.is_empty() {
        true => Err(refusal(
            "runs",
            "there are none, expected at least one".to_owned(),
        )),
        false => Ok(parts),
    }
}

fn object(place: &str, value: Value) -> Result<Value, FieldError> {
    match value {
        Value::Null => Ok(Value::Object(Map::new())),
        value => FileFields::new(place, &value).map(|_| ()).map(|()| value),
    }
}

/// Returns the runs by name: a mapping, or the list of older files.
fn by_name(runs: Value) -> Result<Map<String, Value>, FieldError> {
    let entries = match runs {
        Value::Object(runs) => return named(runs),
        Value::Array(entries) => entries,
        _ => {
            let reason = "expected a mapping from names to runs";
            return Err(refusal("runs", reason.to_owned()));
        }
    };
    let mut runs = Map::new();
    for (index, mut entry) in entries.into_iter().enumerate() {
        let place = format!("runs[{index}]");
        let name = FileFields::new(&place, &entry)?.string("name")?;
        tree::take(&mut entry, &["name"]);
        if runs.insert(name.clone(), entry).is_some() {
            return Err(refusal(
                &place,
                format!("`{name}` is also the name of another run"),
            ));
        }
    }
    Ok(runs)
}

fn named(runs: Map<String, Value>) -> Result<Map<String, Value>, FieldError> {
    let of_run = |(name, run): (String, Value)| {
        let place = format!("runs.{name}");
        let run = object(&place, run)?;
        for field in ["name", "shared"] {
            if run.get(field).is_some() {
                let reason = "the key in `runs` is the name of a run, and shared values are \
                              beside `runs`";
                return Err(refusal(&format!("{place}.{field}"), reason.to_owned()));
            }
        }
        Ok((name, run))
    };
    runs.into_iter().map(of_run).collect()
}

/// Refuses shared values that no run has use for if they resemble one that runs have; returns the
/// dotted names of the others. A value that a reference names may have any name.
pub(super) fn unread(parts: &Parts) -> Result<Vec<String>, FieldError> {
    let mut named = BTreeSet::new();
    for tree in parts.runs.values().chain([&parts.shared]) {
        references::each(tree, &mut |reference| {
            named.insert(root(reference));
        });
    }
    let fields = FileFields::new("shared", &parts.shared)?;
    let mut unused = Vec::new();
    for key in fields.left().filter(|key| !run::FIELDS.contains(key)) {
        if named.contains(key) {
            continue;
        }
        if similar_to(key, run::FIELDS) {
            return Err(fields.unknown(key, run::FIELDS));
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
pub(super) fn with_shared(parts: &Parts) -> Result<Map<String, Value>, FieldError> {
    let mut shared = parts.shared.clone();
    if let Value::Object(shared) = &mut shared {
        shared.retain(|key, _| run::FIELDS.contains(&key.as_str()));
    }
    let size = shared.to_string().len();
    if size.saturating_mul(parts.runs.len()) > MAX_BYTES {
        let count = parts.runs.len();
        let reason =
            format!("its {size} bytes in {count} runs are more than {MAX_BYTES} bytes of jobs");
        return Err(refusal("shared", reason));
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
        *variations = dotted::nested(variations.take());
    }
    run
}

/// Applies a change to the run that it names, or removes that run.
pub(super) fn change(runs: &mut Map<String, Value>, change: &Change) -> Result<(), FieldError> {
    let name = change.run().unwrap_or_default();
    let Some(run) = runs.get_mut(name) else {
        let known = most_similar(name, runs.keys().map(String::as_str), similar::NAME);
        let hint = known.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
        return Err(refusal(
            &change.name(),
            format!("there is no run `{name}`{hint}"),
        ));
    };
    if !change.removes_run() {
        change.apply(run);
        *run = with_nested_variations(run.take());
        return Ok(());
    }
    runs.shift_remove(name);
    match runs.is_empty() {
        true => Err(refusal(
            &change.name(),
            "it removes the last run, expected at least one".to_owned(),
        )),
        false => Ok(()),
    }
}

/// Refuses references that lead nowhere.
pub(super) fn refuse_unresolved(name: &str, run: &Value) -> Result<(), FieldError> {
    let mut first = None;
    references::each(run, &mut |reference| {
        first.get_or_insert_with(|| reference.to_owned());
    });
    match first {
        Some(reference) => {
            let reason = format!("`{reference}` cannot be resolved");
            Err(refusal(&format!("runs.{name}"), reason))
        }
        None => Ok(()),
    }
}

pub(super) fn similar_to(key: &str, known: &[&str]) -> bool {
    most_similar(key, known.iter().copied(), similar::NAME).is_some()
}

pub(super) fn refusal(place: &str, reason: String) -> FieldError {
    FieldError {
        place: place.to_owned(),
        unknown: None,
        reason,
    }
}
