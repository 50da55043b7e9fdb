//! Configurations in YAML as trees of JSON values: parsed, merged, their names with dots read as
//! paths (`light.hdr_image.enabled: true`), and their references of OmegaConf resolved:
//! `${runner.logger.log_path}/video` and `${oc.env:HOME}`.
//!
//! A reference that cannot be resolved stays as it is, because most of a configuration is never
//! read. A setting that is read reports the unresolved reference itself.

use std::cell::Cell;
use std::path::Path;

use serde_json::{Map, Value};
use serde_saphyr::Options;

use crate::refusal::Refusal;
use crate::{files, installed};

/// Maximum size of a configuration file in bytes; RLinf's longest has 20 KB.
const MAX_BYTES: u64 = 4 << 20;

/// Maximum number of parts of a dotted name; the deepest setting of RLinf has seven.
pub(crate) const MOST_PARTS: usize = 32;

/// Reads the text of a file.
pub fn read(path: &Path) -> Result<String, Refusal> {
    let text = files::read_text(&installed::found_path(path), MAX_BYTES);
    let place = format!("cannot read config `{}`", path.display());
    text.map_err(|err| Refusal::at(place, err))
}

/// Parses a text. A top-level key with dots, as in s001's `env.eval.video_cfg.save_video: False`,
/// is a path.
pub fn parse(path: &Path, text: &str) -> Result<Value, Refusal> {
    let value = serde_saphyr::from_str_with_options::<Value>(text, options())
        .map_err(|err| Refusal::in_file(path, err))?;
    let entries = match value {
        Value::Object(entries) => entries,
        Value::Null if !has_value(text) => Map::new(),
        _ => {
            let reason = "expected a mapping at the top level, for example `cluster:` and `env:`";
            return Err(Refusal::in_file(path, reason));
        }
    };
    let empty = Value::Object(Map::new());
    Ok(entries.into_iter().fold(empty, |tree, (key, value)| {
        merge(tree, at_path(&key, value))
    }))
}

/// Returns whether there is more than comments in a text: `null` or `~` is a value.
fn has_value(text: &str) -> bool {
    let mut lines = text.lines().filter_map(|line| line.split('#').next());
    lines.any(|line| !matches!(line.trim(), "" | "---" | "..."))
}

/// Returns the limits of the parser. It counts what aliases are replaced by, which stops a bomb; how
/// many aliases there are for an anchor says nothing, as a list of tasks repeats one policy often.
/// `010` is 8, as in OmegaConf.
fn options() -> Options {
    serde_saphyr::options! {
        legacy_octal_numbers: true,
        budget: serde_saphyr::budget! { enforce_alias_anchor_ratio: false },
    }
}

/// Returns the object that stands at a place, or refuses another value.
pub(crate) fn object<'a>(place: &str, value: &'a Value) -> Result<&'a Map<String, Value>, Refusal> {
    let object = value.as_object();
    object.ok_or_else(|| Refusal::found(place, value, "expected an object"))
}

/// Returns a tree with one value, at a dotted name. A name of very many parts is one part, because
/// a deep tree takes a deep stack.
pub(crate) fn at_path(key: &str, value: Value) -> Value {
    let named = |value, part: &str| Value::Object(Map::from_iter([(part.to_owned(), value)]));
    match key.split('.').count() {
        ..=MOST_PARTS => key.rsplit('.').fold(value, named),
        _ => named(value, key),
    }
}

/// Merges `later` over `earlier`: mappings are merged, everything else is replaced. Names keep their
/// order.
pub fn merge(mut earlier: Value, later: Value) -> Value {
    match (&mut earlier, later) {
        (Value::Object(below), Value::Object(later)) => {
            overlay(below, later);
            earlier
        }
        (_, later) => later,
    }
}

/// Merges a mapping over another one.
pub fn overlay(earlier: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (earlier.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(value)) => overlay(below, value),
            (_, value) => drop(earlier.insert(key, value)),
        }
    }
}

/// Removes a value, at a dotted name, from a tree and returns it.
pub(crate) fn take(tree: &mut Value, path: &str) -> Option<Value> {
    let (parent, last) = match path.rsplit_once('.') {
        Some((above, last)) => {
            let mut parts = above.split('.');
            (parts.try_fold(tree, |tree, part| tree.get_mut(part))?, last)
        }
        None => (tree, path),
    };
    parent.as_object_mut()?.shift_remove(last)
}

/// Maximum depth of references that lead to references.
const DEPTH: usize = 8;

/// Maximum size of all values that references are replaced by, in bytes of JSON: a short file may
/// name a long text many times.
pub(crate) const MAX_RESOLVED: usize = 64 << 20;

/// Calls `found` for each unresolved reference.
pub(crate) fn each_reference(value: &Value, found: &mut dyn FnMut(&str)) {
    each_text(value, &mut |mut rest| {
        while let Some(reference) = unresolved(rest) {
            found(reference);
            rest = rest.split_once(reference).unwrap_or_default().1;
        }
    });
}

/// Returns the first unresolved reference in a text.
pub(crate) fn unresolved(text: &str) -> Option<&str> {
    let start = text.find("${")?;
    let end = text[start..]
        .find('}')
        .map_or(text.len(), |end| start + end + 1);
    Some(&text[start..end])
}

/// Resolves references to the values of trees.
pub(crate) struct Resolver<'a> {
    /// The tree that is looked into after the one that has the reference.
    root: &'a Value,
    variable: &'a dyn Fn(&str) -> Option<String>,
    has_mappings: bool,
    /// Bytes of JSON that references may still be replaced by.
    left: Cell<usize>,
}

impl<'a> Resolver<'a> {
    /// Creates a resolver. `has_mappings` says whether a reference may name a mapping or a list.
    pub(crate) fn new(
        root: &'a Value,
        variable: &'a dyn Fn(&str) -> Option<String>,
        has_mappings: bool,
    ) -> Self {
        Self {
            root,
            variable,
            has_mappings,
            left: Cell::new(MAX_RESOLVED),
        }
    }

    /// Returns a tree with its references resolved, to values of itself or of the root.
    pub(crate) fn resolve(&self, tree: &Value) -> Value {
        self.value(tree, tree, 0)
    }

    fn value(&self, value: &Value, tree: &Value, depth: usize) -> Value {
        match value {
            Value::Object(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone(), self.value(value, tree, depth)))
                .collect(),
            Value::Array(items) => items
                .iter()
                .map(|item| self.value(item, tree, depth))
                .collect(),
            Value::String(text) => self.text(text, tree, depth),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, tree: &Value, depth: usize) -> Value {
        let Some(reference) = unresolved(text).filter(|_| depth < DEPTH) else {
            return text.into();
        };
        let found = reference
            .strip_prefix("${")
            .and_then(|inner| inner.strip_suffix('}'));
        let Some(found) = found.and_then(|inner| self.look_up(inner.trim(), tree, depth)) else {
            return text.into();
        };
        if text == reference {
            return found;
        }
        let shown = match &found {
            Value::String(text) => text.clone(),
            Value::Object(_) | Value::Array(_) => return text.into(),
            other => other.to_string(),
        };
        self.text(&text.replacen(reference, &shown, 1), tree, depth + 1)
    }

    fn look_up(&self, inner: &str, tree: &Value, depth: usize) -> Option<Value> {
        if let Some(variable) = inner.strip_prefix("oc.env:") {
            let (name, default) = variable
                .split_once(',')
                .map_or((variable, None), |(name, or)| (name, Some(or)));
            return (self.variable)(name.trim())
                .or(default.map(|or| or.trim().to_owned()))
                .map(Value::String);
        }
        let below = |tree| {
            inner
                .split('.')
                .try_fold(tree, |tree: &Value, part| tree.get(part))
        };
        let found = below(tree).or_else(|| below(self.root))?;
        // A mapping that contains a reference to itself would grow with every step.
        if !self.has_mappings && (found.is_object() || found.is_array()) {
            return None;
        }
        self.left.set(self.left.get().checked_sub(size(found))?);
        Some(self.value(found, tree, depth + 1))
    }
}

/// Returns about how many bytes of JSON a value has.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(entries) => entries
            .iter()
            .map(|(key, value)| key.len() + size(value))
            .sum(),
        Value::Array(items) => items.iter().map(|item| 1 + size(item)).sum(),
        Value::String(text) => 2 + text.len(),
        _ => 1,
    }
}

/// Returns nested objects for dotted names, on so many levels.
pub(crate) fn nested(value: Value, levels: usize) -> Value {
    let entries = match value {
        Value::Object(entries) if levels > 0 => entries,
        other => return other,
    };
    let empty = Value::Object(Map::new());
    entries.into_iter().fold(empty, |tree, (name, value)| {
        merge(tree, at_path(&name, nested(value, levels - 1)))
    })
}

/// Returns the values of nested objects under their dotted names.
pub fn flat(values: &Map<String, Value>) -> Map<String, Value> {
    let mut found = Map::new();
    collect("", values, &mut found);
    found
}

fn collect(above: &str, values: &Map<String, Value>, found: &mut Map<String, Value>) {
    for (name, value) in values {
        let name = match above {
            "" => name.clone(),
            above => format!("{above}.{name}"),
        };
        match value {
            Value::Object(below) => collect(&name, below, found),
            other => drop(found.insert(name, other.clone())),
        }
    }
}

/// Returns a value as people write it: a text without quotes, everything else as JSON.
pub fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Calls `found` for each text in a value, in order.
pub fn each_text<'v>(value: &'v Value, found: &mut dyn FnMut(&'v str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().for_each(|item| each_text(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| each_text(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Calls `change` for each text in a value, in order.
pub fn each_text_mut(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| each_text_mut(item, change)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| each_text_mut(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
