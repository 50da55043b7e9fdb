//! Finds the goldens and reads their tensors.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use models::gr00t::processor::Image;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

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

/// Returns case d, whose actions are relative.
pub fn droid() -> PathBuf {
    let mut dirs = cases_with("case.json").into_iter();
    dirs.find(|dir| dir.join("model.safetensors.index.json").is_file())
        .expect("case d is there")
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// One tensor of a file.
#[derive(Debug)]
pub struct Stored {
    pub dtype: Dtype,
    pub shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Returns the tensors of a safetensors file.
pub fn tensors(path: &Path) -> BTreeMap<String, Stored> {
    let bytes = fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let stored = |(name, view): (String, safetensors::tensor::TensorView)| {
        (
            name,
            Stored {
                dtype: view.dtype(),
                shape: view.shape().to_vec(),
                bytes: view.data().to_vec(),
            },
        )
    };
    file.tensors().into_iter().map(stored).collect()
}

impl Stored {
    pub fn bytes(&self) -> &[u8] {
        assert_eq!(self.dtype, Dtype::U8);
        &self.bytes
    }

    pub fn floats(&self) -> Vec<f32> {
        assert_eq!(self.dtype, Dtype::F32);
        let (chunks, _) = self.bytes.as_chunks();
        chunks.iter().map(|it| f32::from_le_bytes(*it)).collect()
    }

    pub fn integers(&self) -> Vec<i64> {
        assert_eq!(self.dtype, Dtype::I64);
        let (chunks, _) = self.bytes.as_chunks();
        chunks.iter().map(|it| i64::from_le_bytes(*it)).collect()
    }

    /// Returns numbers of float32 or bfloat16.
    pub fn wide(&self) -> Vec<f32> {
        if self.dtype != Dtype::BF16 {
            return self.floats();
        }
        let (halves, _) = self.bytes.as_chunks::<2>();
        let wide = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
        halves.iter().map(wide).collect()
    }

    pub fn image(&self) -> Image {
        let [height, width, 3] = self.shape[..] else {
            panic!("{:?} is no picture", self.shape)
        };
        Image {
            height,
            width,
            rgb: self.bytes().to_vec(),
        }
    }
}

/// Returns the tensors whose names have a prefix, without the prefix.
pub fn below<'a>(
    tensors: &'a BTreeMap<String, Stored>,
    prefix: &str,
) -> Vec<(&'a str, &'a Stored)> {
    tensors
        .iter()
        .filter_map(|(name, stored)| Some((name.strip_prefix(prefix)?, stored)))
        .collect()
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
