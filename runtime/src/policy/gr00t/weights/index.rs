//! `model.safetensors.index.json`: which shard holds which tensor.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::super::LoadError;
use super::pairs::Pairs;

/// Tensors and the files they lie in, in the order of the index.
#[derive(Deserialize)]
struct Index {
    weight_map: Pairs<String>,
}

/// Reads an index: names of tensors, each with the name of a file beside the index.
///
/// # Errors
/// [`LoadError`] for a name that is there twice and for a file that does not lie beside the index.
pub(super) fn read(path: &Path) -> Result<Vec<(String, String)>, LoadError> {
    parse(path, &fs::read(path).map_err(LoadError::io(path))?)
}

fn parse(path: &Path, text: &[u8]) -> Result<Vec<(String, String)>, LoadError> {
    let index: Index = serde_json::from_slice(text).map_err(|err| LoadError::Json { path: path.to_owned(), err })?;
    let bad = |reason| LoadError::Index { path: path.to_owned(), reason };
    if let Some(name) = index.weight_map.duplicate() {
        return Err(bad(format!("tensor `{name}` is there twice")));
    }
    match index.weight_map.0.iter().find(|(_, file)| !is_plain(file)) {
        Some((name, file)) => {
            Err(bad(format!("tensor `{name}` is in {file:?}, a .safetensors file beside the index is needed")))
        }
        None => Ok(index.weight_map.0),
    }
}

/// Whether this is the plain name of a safetensors file: no directory, so no way out of the checkpoint.
fn is_plain(file: &str) -> bool {
    !file.contains(['/', '\\', '\0']) && !file.starts_with('.') && file.ends_with(".safetensors")
}
