//! Reads `model.safetensors.index.json`, which maps tensors to shards.

use std::fs;
use std::path::Path;

use jobs::refusal::Refusal;
use serde::Deserialize;

use crate::error::{in_file, refuse};
use crate::weights::pairs::JsonPairs;

/// The tensors with the names of their files, in the order of the index.
#[derive(Deserialize)]
struct Index {
    weight_map: JsonPairs<String>,
}

/// Reads an index: the names of tensors, each with the name of a file in the same directory.
///
/// # Errors
/// Returns a [`Refusal`] for a duplicate name, and for a file outside the directory of the index.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, Refusal> {
    parse(path, &fs::read(path).map_err(in_file(path))?)
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
    let index: Index = serde_json::from_slice(text).map_err(in_file(path))?;
    if let Some(name) = index.weight_map.duplicate() {
        let reason = format_args!("tensor `{name}` is listed twice");
        return Err(refuse(path, reason));
    }
    match index.weight_map.0.iter().find(|(_, file)| !is_plain(file)) {
        Some((name, file)) => {
            let reason = format_args!(
                "tensor `{name}` is in {file:?}, expected a .safetensors file beside the index"
            );
            Err(refuse(path, reason))
        }
        None => Ok(index.weight_map.0),
    }
}

/// Returns whether this is the plain name of a safetensors file. A name without a directory cannot
/// point outside the checkpoint.
fn is_plain(file: &str) -> bool {
    !file.contains(['/', '\\', '\0']) && !file.starts_with('.') && file.ends_with(".safetensors")
}
