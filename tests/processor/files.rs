//! Finds the goldens and reads their tensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tch::{Kind, Tensor};

/// The tensors of a safetensors file by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// Returns the folder of the goldens.
pub fn goldens() -> PathBuf {
    let committed = || rig::fixture("gr00t");
    std::env::var_os("RRUN_GOLDENS").map_or_else(committed, PathBuf::from)
}

/// Returns the case folders that contain a file.
pub fn cases_with(name: &str) -> Vec<PathBuf> {
    let dir = goldens();
    let entries = fs::read_dir(&dir).unwrap_or_else(|err| panic!("`{}`: {err}", dir.display()));
    let mut cases: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    cases.retain(|case| case.join(name).is_file());
    cases.sort();
    assert!(
        !cases.is_empty(),
        "`{}` has no folder with `{name}`",
        dir.display()
    );
    cases
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Returns the tensors of a safetensors file.
pub fn tensors(path: &Path) -> Tensors {
    let tensors = Tensor::read_safetensors(path).unwrap();
    tensors.into_iter().collect()
}

/// Returns the tensors whose names have a prefix, without the prefix.
pub fn below<'a>(tensors: &'a Tensors, prefix: &str) -> Vec<(&'a str, &'a Tensor)> {
    tensors
        .iter()
        .filter_map(|(name, tensor)| Some((name.strip_prefix(prefix)?, tensor)))
        .collect()
}

/// Returns the values of an image, which are bytes.
pub fn bytes(tensor: &Tensor) -> Vec<u8> {
    assert_eq!(tensor.kind(), Kind::Uint8);
    Vec::try_from(tensor.reshape(-1)).unwrap()
}

/// Returns the values as float32.
pub fn floats(tensor: &Tensor) -> Vec<f32> {
    Vec::try_from(tensor.reshape(-1)).unwrap()
}

/// Returns the largest difference, or infinity if the lengths differ.
pub fn difference(found: &[f32], wanted: &[f32]) -> f64 {
    if found.len() != wanted.len() {
        return f64::INFINITY;
    }
    found
        .iter()
        .zip(wanted)
        .map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs())
        .fold(0.0, f64::max)
}
