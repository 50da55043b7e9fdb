//! Computes the size of a checkpoint's weights from the headers of its files; no tensor is read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use jobs::files;
use jobs::safetensors::LENGTH;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::Deserialize;

/// Maximum size of an index in bytes; that of GR00T N1.7 has 90 KB.
const MAX_INDEX: u64 = 64 << 20;

/// Name of a checkpoint in a single file.
const SINGLE: &str = "model.safetensors";

/// Name of the index of a checkpoint in several files.
const INDEX: &str = "model.safetensors.index.json";

/// Extensions of weight files whose headers cannot be read; their file sizes are used instead.
const FORMATS: &[&str] = &["safetensors", "bin", "pt", "pth", "ts"];

/// Depth up to which the subfolders of a checkpoint are searched.
const DEPTH: usize = 3;

/// Returns the size of a tensor in bytes if a floating-point element has `float_bytes` bytes.
pub(super) fn bytes(tensor: &TensorInfo, float_bytes: u64) -> u64 {
    let bits = match tensor.dtype {
        Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::BF16 => 8 * float_bytes,
        other => other.bitsize() as u64,
    };
    let sides = tensor.shape.iter().map(|side| *side as u64);
    sides.fold(bits, u64::saturating_mul).div_ceil(8)
}

/// Returns the tensors of `model.safetensors`, or of the files in its index, by name. Returns
/// `None` if a file is missing or cannot be read.
pub(super) fn tensors(folder: &Path) -> Option<BTreeMap<String, TensorInfo>> {
    let single = folder.join(SINGLE);
    if single.is_file() {
        return described(&header(&single)?.0);
    }
    let mut all = BTreeMap::new();
    for file in shards(&folder.join(INDEX)).ok()? {
        all.extend(described(&header(&folder.join(file))?.0)?);
    }
    (!all.is_empty()).then_some(all)
}

/// An index: the files of tensors, by their names.
#[derive(Deserialize)]
struct Index {
    #[serde(default)]
    weight_map: BTreeMap<String, String>,
}

/// Returns the names of the files that an index has.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn shards(index: &Path) -> io::Result<BTreeSet<String>> {
    let index: Index = files::read_json(index, MAX_INDEX)?;
    Ok(index.weight_map.into_values().collect())
}

/// Returns whether a file of safetensors has all bytes that its header names.
pub fn is_whole(path: &Path) -> bool {
    let Some((json, data)) = header(path) else {
        return false;
    };
    let Ok(entries) = serde_json::from_slice::<BTreeMap<String, Option<Entry>>>(&json) else {
        return false;
    };
    let end = |entry: Option<Entry>| Some(entry?.data_offsets?[1]);
    entries.into_values().filter_map(end).max() <= Some(data)
}

/// An entry of a header: a tensor of any type, also one that no policy of ours has, or metadata,
/// which has no offsets. A header may have 100 MB, so nothing else is kept of it.
#[derive(Deserialize)]
struct Entry {
    data_offsets: Option<[u64; 2]>,
}

/// Returns the header of one file, the text of a JSON object, and the number of bytes behind it.
fn header(path: &Path) -> Option<(Vec<u8>, u64)> {
    let mut file = files::open(path).ok()?;
    let size = file.metadata().ok()?.len();
    let json = jobs::safetensors::header(&mut file, size).ok()?;
    let data = size - LENGTH - json.len() as u64;
    Some((json, data))
}

fn described(json: &[u8]) -> Option<BTreeMap<String, TensorInfo>> {
    let metadata: Metadata = serde_json::from_slice(json).ok()?;
    let tensors = metadata.tensors().into_iter();
    Some(tensors.map(|(name, info)| (name, info.clone())).collect())
}

/// Returns the bytes of the weights in a file or folder, by file size. If a checkpoint has its
/// weights in two formats, only one is counted, because only one is loaded.
pub(super) fn file_bytes(path: &Path) -> Option<u64> {
    if path.is_file() {
        return Some(path.metadata().ok()?.len());
    }
    let mut by_format = vec![0; FORMATS.len()];
    add(path, DEPTH, &mut by_format);
    by_format.into_iter().max().filter(|bytes| *bytes > 0)
}

fn add(folder: &Path, depth: usize, by_format: &mut [u64]) {
    for entry in files::entries(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_format = |format: &&str| path.extension().is_some_and(|end| end == *format);
        if let Some(format) = FORMATS.iter().position(is_format) {
            by_format[format] += path.metadata().map_or(0, |metadata| metadata.len());
        } else if depth > 0 && path.is_dir() {
            add(&path, depth - 1, by_format);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    /// Writes a file whose header describes these tensors, without their data.
    fn file(path: &Path, tensors: &Value) {
        let json = tensors.to_string();
        let bytes = [&(json.len() as u64).to_le_bytes()[..], json.as_bytes()].concat();
        std::fs::write(path, bytes).unwrap();
    }

    #[test]
    fn tensors_are_counted_in_the_type_that_they_are_computed_in() {
        let dir = tempfile::tempdir().unwrap();
        let tensors_of = json!({"a": {"dtype": "F32", "shape": [10, 100], "data_offsets": [0, 4000]},
                                "ids": {"dtype": "I64", "shape": [3], "data_offsets": [4000, 4024]}});
        file(&dir.path().join(SINGLE), &tensors_of);
        let found = tensors(dir.path()).unwrap();
        let sum = |float: u64| -> u64 {
            let sizes = found.values().map(|tensor| bytes(tensor, float));
            sizes.sum()
        };
        assert_eq!((sum(2), sum(4)), (2024, 4024));
    }

    #[test]
    fn the_shards_of_an_index_are_added_up_and_a_missing_one_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let one =
            |name: &str| json!({name: {"dtype": "BF16", "shape": [8], "data_offsets": [0, 16]}});
        file(&dir.path().join("1.safetensors"), &one("a"));
        file(&dir.path().join("2.safetensors"), &one("b"));
        let index = json!({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}});
        std::fs::write(dir.path().join(INDEX), index.to_string()).unwrap();
        assert_eq!(tensors(dir.path()).unwrap().len(), 2);
        std::fs::remove_file(dir.path().join("2.safetensors")).unwrap();
        assert!(tensors(dir.path()).is_none());
    }

    #[test]
    fn a_fifo_in_a_checkpoint_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = |name: &str| {
            let made = std::process::Command::new("mkfifo")
                .arg(dir.path().join(name))
                .status();
            assert!(made.unwrap().success());
        };
        fifo(INDEX);
        assert!(tensors(dir.path()).is_none());
        fifo("1.safetensors");
        assert!(!is_whole(&dir.path().join("1.safetensors")));
    }

    #[test]
    fn a_file_without_a_header_and_one_whose_header_lies_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(SINGLE);
        for bytes in [
            &b""[..],
            &[0; 7],
            &[0; 64],
            &[0xff; 64],
            b"\x02\0\0\0\0\0\0\0{]",
            b"\x05\0\0\0\0\0\0\0{\"a\"",
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert!(!is_whole(&path), "{bytes:?}");
            assert!(tensors(dir.path()).is_none_or(|tensors| tensors.is_empty()));
        }
    }

    proptest! {
        #[test]
        fn no_header_makes_the_reader_panic(json in "\\PC{0,60}", sides in proptest::collection::vec(any::<u64>(), 0..4)) {
            let _ = described(json.as_bytes());
            let hostile = json!({"a": {"dtype": "F4", "shape": sides, "data_offsets": [0, u64::MAX]}});
            let hostile = described(hostile.to_string().as_bytes()).unwrap_or_default();
            hostile.values().for_each(|tensor| {
                bytes(tensor, 2);
            });
        }
    }
}
