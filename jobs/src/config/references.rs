//! Resolves the references of OmegaConf: `${runner.logger.log_path}/video` and `${oc.env:HOME}`.
//!
//! A reference that cannot be resolved stays as it is, because most of a configuration is never
//! read. A setting that is read reports the unresolved reference itself.

use serde_json::Value;

/// Maximum depth of references that lead to references.
const DEPTH: usize = 8;

/// Returns the tree with its references resolved.
pub(super) fn resolve(tree: &Value, variable: &dyn Fn(&str) -> Option<String>) -> Value {
    Resolver { tree, variable }.value(tree, 0)
}

/// Returns the first unresolved reference in a text.
pub(super) fn unresolved(text: &str) -> Option<&str> {
    let start = text.find("${")?;
    let end = text[start..]
        .find('}')
        .map_or(text.len(), |end| start + end + 1);
    Some(&text[start..end])
}

struct Resolver<'a> {
    tree: &'a Value,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Resolver<'_> {
    fn value(&self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Object(entries) => entries
                .iter()
                .map(|(key, value)| (key.clone(), self.value(value, depth)))
                .collect(),
            Value::Array(items) => items.iter().map(|item| self.value(item, depth)).collect(),
            Value::String(text) => self.text(text, depth),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Value {
        let Some(reference) = unresolved(text).filter(|_| depth < DEPTH) else {
            return text.into();
        };
        let found = reference
            .strip_prefix("${")
            .and_then(|inner| inner.strip_suffix('}'));
        let Some(found) = found.and_then(|inner| self.look_up(inner.trim(), depth)) else {
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
        self.text(&text.replacen(reference, &shown, 1), depth + 1)
    }

    fn look_up(&self, inner: &str, depth: usize) -> Option<Value> {
        if let Some(variable) = inner.strip_prefix("oc.env:") {
            let (name, default) = variable
                .split_once(',')
                .map_or((variable, None), |(name, or)| (name, Some(or)));
            return (self.variable)(name.trim())
                .or(default.map(|or| or.trim().to_owned()))
                .map(Value::String);
        }
        let found = inner
            .split('.')
            .try_fold(self.tree, |tree, part| tree.get(part))?;
        // A mapping that contains a reference to itself would grow with every step.
        if found.is_object() || found.is_array() {
            return None;
        }
        Some(self.value(found, depth + 1))
    }
}
