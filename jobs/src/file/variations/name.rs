//! Names of variants that have none: their arguments and values, as a file name.

use serde_json::{Map, Value};

use crate::sha256;

/// Most bytes of a value in a name.
const MAX_VALUE_BYTES: usize = 32;

/// Most bytes of a name; a job has at most 200 with its own.
const MAX_NAME_BYTES: usize = 100;

/// Digits of a hash that stands for a longer text: 32 bits, for at most a thousand variants.
const HASH_DIGITS: usize = 8;

/// Returns a name such as `light_intensity_100_object_cube`. It follows from the values alone, so
/// that it stays if other variants are added.
pub(super) fn of(values: &Map<String, Value>) -> String {
    let parts = values
        .iter()
        .map(|(argument, value)| format!("{}_{}", plain(argument), text(value)));
    shortened(parts.collect::<Vec<_>>().join("_"), MAX_NAME_BYTES)
}

fn text(value: &Value) -> String {
    let json = value.to_string();
    let text = plain(value.as_str().unwrap_or(&json));
    shortened(text, MAX_VALUE_BYTES)
}

fn shortened(text: String, limit: usize) -> String {
    match text.len() <= limit {
        true => text,
        false => sha256::of(text)[..HASH_DIGITS].to_owned(),
    }
}

/// Keeps the letters and digits of a text, and the punctuation of numbers; commas and the like
/// become hyphens, brackets and quotation marks go.
fn plain(text: &str) -> String {
    let kept = text.chars().filter_map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' | '-' | '.' | '+' => Some(letter),
        '[' | ']' | '{' | '}' | '"' => None,
        _ => Some('-'),
    });
    kept.collect()
}
