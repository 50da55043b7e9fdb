//! Configurations in YAML as trees of JSON values: parsed, merged, and their references resolved.

pub(crate) mod references;

use std::path::Path;

use serde_json::{Map, Value};
use serde_saphyr::Options;

use crate::files;
use crate::installed;
use crate::refusal::Refusal;

/// Maximum size of a configuration file in bytes; RLinf's longest has 20 KB.
const MAX_BYTES: u64 = 4 << 20;

/// Maximum number of parts of a dotted name; the deepest setting of RLinf has seven.
pub(crate) const MOST_PARTS: usize = 32;

/// Reads the text of a file.
pub fn read(path: &Path) -> Result<String, Refusal> {
    let text = files::read_text(&installed::found_path(path), MAX_BYTES);
    text.map_err(|err| Refusal::at(format_args!("cannot read config {}", quoted(path)), err))
}

/// Returns a path as refusals name it.
pub(crate) fn quoted(path: &Path) -> String {
    format!("`{}`", path.display())
}

/// Parses a text. A top-level key with dots, as in s001's `env.eval.video_cfg.save_video: False`,
/// is a path.
pub fn parse(path: &Path, text: &str) -> Result<Value, Refusal> {
    let refuse = |reason: String| Refusal::at(quoted(path), reason);
    if text
        .lines()
        .all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
    {
        return Ok(Value::Object(Map::new()));
    }
    let value = serde_saphyr::from_str_with_options::<Value>(text, options())
        .map_err(|err| refuse(err.to_string()))?;
    let Value::Object(entries) = value else {
        return Err(refuse(
            "expected a mapping at the top level, for example `cluster:` and `env:`".to_owned(),
        ));
    };
    Ok(entries.into_iter().fold(Value::Null, |tree, (key, value)| {
        merge(tree, at_path(&key, value))
    }))
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

/// Removes a value from a tree and returns it.
pub(crate) fn take(tree: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, above) = path.split_last()?;
    let parent = above
        .iter()
        .try_fold(tree, |tree, part| tree.get_mut(part))?;
    parent.as_object_mut()?.shift_remove(*last)
}
