//! Names with dots in `variations`, which Arena reads as paths: `light.hdr_image.enabled: true`.

use serde_json::{Map, Value};

use crate::tree;

/// Number of levels on which names are read as paths; Arena's variations have four.
const LEVELS: usize = 8;

/// Returns nested objects for dotted names.
pub(super) fn nested(value: Value) -> Value {
    nested_to(value, LEVELS)
}

fn nested_to(value: Value, levels: usize) -> Value {
    let entries = match value {
        Value::Object(entries) if levels > 0 => entries,
        other => return other,
    };
    let empty = Value::Object(Map::new());
    entries.into_iter().fold(empty, |tree, (name, value)| {
        tree::merge(tree, tree::at_path(&name, nested_to(value, levels - 1)))
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
