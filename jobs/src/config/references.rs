//! OmegaConf's references: `${runner.logger.log_path}/video` and `${oc.env:HOME}`.
//!
//! What cannot be resolved stays as it is: most of a configuration is never looked at. A setting that is looked at says
//! so itself.

use serde_json::Value;

/// References that may lead to references.
const DEPTH: usize = 8;

/// The tree with its references resolved.
pub(super) fn resolve(tree: &Value, variable: &dyn Fn(&str) -> Option<String>) -> Value {
    Resolver { tree, variable }.value(tree, 0)
}

/// The first reference that is left in a text.
pub(super) fn unresolved(text: &str) -> Option<&str> {
    let start = text.find("${")?;
    let end = text[start..].find('}').map_or(text.len(), |end| start + end + 1);
    Some(&text[start..end])
}

struct Resolver<'a> {
    tree: &'a Value,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Resolver<'_> {
    fn value(&self, value: &Value, depth: usize) -> Value {
        match value {
            Value::Object(entries) => {
                entries.iter().map(|(key, value)| (key.clone(), self.value(value, depth))).collect()
            }
            Value::Array(items) => items.iter().map(|item| self.value(item, depth)).collect(),
            Value::String(text) => self.text(text, depth),
            other => other.clone(),
        }
    }

    fn text(&self, text: &str, depth: usize) -> Value {
        let Some(reference) = unresolved(text).filter(|_| depth < DEPTH) else { return text.into() };
        let found = reference.strip_prefix("${").and_then(|inner| inner.strip_suffix('}'));
        let Some(found) = found.and_then(|inner| self.look_up(inner.trim(), depth)) else { return text.into() };
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
            let (name, default) = variable.split_once(',').map_or((variable, None), |(name, or)| (name, Some(or)));
            return (self.variable)(name.trim()).or(default.map(|or| or.trim().to_owned())).map(Value::String);
        }
        let found = inner.split('.').try_fold(self.tree, |tree, part| tree.get(part))?;
        // A mapping that contains its own reference would grow with every step.
        if found.is_object() || found.is_array() {
            return None;
        }
        Some(self.value(found, depth + 1))
    }
}
