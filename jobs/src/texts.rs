//! The texts within a JSON value, without the names of fields.

use serde_json::Value;

/// Calls `found` for each text in a value, in order.
pub fn each<'v>(value: &'v Value, found: &mut dyn FnMut(&'v str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().for_each(|item| each(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| each(field, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Calls `change` for each text in a value, in order.
pub fn each_mut(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_mut(item, change)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| each_mut(field, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
