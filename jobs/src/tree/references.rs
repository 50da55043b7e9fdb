//! Resolves the references of OmegaConf: `${runner.logger.log_path}/video` and `${oc.env:HOME}`.
//!
//! A reference that cannot be resolved stays as it is, because most of a configuration is never
//! read. A setting that is read reports the unresolved reference itself.

use std::cell::Cell;

use serde_json::Value;

use crate::texts;

/// Maximum depth of references that lead to references.
const DEPTH: usize = 8;

/// Maximum size of all values that references are replaced by, in bytes of JSON: a short file may
/// name a long text many times.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Calls `found` for each unresolved reference.
pub(crate) fn each(value: &Value, found: &mut dyn FnMut(&str)) {
    texts::each(value, &mut |mut rest| {
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
            left: Cell::new(MAX_BYTES),
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
