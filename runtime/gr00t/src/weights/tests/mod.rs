use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::write::{write_checkpoint, write_tensors};
use crate::{ModelConfig, ModelDir};

mod ahead;
mod goldens;
mod hostile;
mod node;

/// Builds a safetensors file from this header and `size` bytes of data: 0, 1, 2 …
fn safetensors(header: &str, size: u8) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(0..size);
    file
}

/// Builds the header entry of a tensor.
fn entry(dtype: &str, shape: &[i64], begin: u64, end: u64) -> Value {
    json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]})
}

/// Creates a directory with these files.
fn directory(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    files
        .iter()
        .for_each(|(name, bytes)| fs::write(dir.path().join(name), bytes).unwrap());
    dir
}

/// Creates a checkpoint with a single file.
fn single(header: &Value, size: u8) -> TempDir {
    directory(&[("model.safetensors", safetensors(&header.to_string(), size))])
}

/// Writes `a` `[2, 2]` and `b` `[3]` of type F32 with our own writer.
fn two_tensors() -> (TempDir, Tensor, Tensor) {
    let (a, b) = (
        Tensor::from_slice(&[1.5_f32, -2.0, 3.25, 4.0]).view([2, 2]),
        Tensor::from_slice(&[5.0_f32, 6.0, 7.0]),
    );
    let named = vec![
        ("a".to_owned(), a.shallow_clone()),
        ("b".to_owned(), b.shallow_clone()),
    ];
    let dir = tempfile::tempdir().unwrap();
    write_checkpoint(dir.path(), &named, Kind::Float, &ModelConfig::released()).unwrap();
    (dir, a, b)
}

fn open(dir: &TempDir, kind: Kind) -> Result<Weights, LoadError> {
    Weights::open(dir.path(), Device::Cpu, kind)
}

fn refusal(dir: &TempDir) -> String {
    open(dir, Kind::Float).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_loaded() {
    let (dir, a, b) = two_tensors();
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(
        (weights.take("a", &[2, 2]), weights.take("b", &[3])),
        (a, b)
    );
    let names: Vec<_> = weights
        .finish()
        .unwrap()
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        ModelConfig::read(&dir.path().join("config.json")).unwrap(),
        ModelConfig::released()
    );
}

#[test]
fn the_same_type_is_a_view_of_the_file() {
    let (dir, ..) = two_tensors();
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(
        weights.take("a", &[2, 2]).data_ptr(),
        weights.take("a", &[2, 2]).data_ptr()
    );
}

#[test]
fn a_tensor_outlives_its_checkpoint() {
    let (dir, a, _) = two_tensors();
    let loaded = open(&dir, Kind::Float).unwrap().take("a", &[2, 2]);
    drop(dir);
    assert_eq!(loaded, a);
}

#[test]
fn writing_to_a_tensor_leaves_the_file_alone() {
    let (dir, a, _) = two_tensors();
    let mut loaded = open(&dir, Kind::Float).unwrap().take("a", &[2, 2]);
    let _ = loaded.fill_(9.0);
    assert_eq!(open(&dir, Kind::Float).unwrap().take("a", &[2, 2]), a);
}

#[test]
fn another_type_is_converted() {
    let (dir, a, _) = two_tensors();
    let loaded = open(&dir, Kind::BFloat16).unwrap().take("a", &[2, 2]);
    assert_eq!(
        (loaded.kind(), loaded.to_kind(Kind::Float)),
        (Kind::BFloat16, a)
    );
}

#[test]
fn a_large_tensor_is_converted_in_pieces() {
    let values = Tensor::arange(40_000_000, (Kind::Float, Device::Cpu))
        .remainder(256)
        .view([4, -1]);
    let dir = tempfile::tempdir().unwrap();
    let named = vec![
        (
            "a".to_owned(),
            Tensor::zeros([3], (Kind::Float, Device::Cpu)),
        ),
        ("b".to_owned(), values),
    ];
    write_checkpoint(dir.path(), &named, Kind::Float, &ModelConfig::released()).unwrap();
    let loaded = open(&dir, Kind::BFloat16)
        .unwrap()
        .take("b", &[4, 10_000_000]);
    assert_eq!(loaded.to_kind(Kind::Float), named[1].1);
}

#[test]
fn a_tensor_at_an_odd_place_is_copied() {
    let dir = single(
        &json!({"pad": entry("U8", &[1], 0, 1), "a": entry("F32", &[1], 1, 5)}),
        5,
    );
    let loaded = open(&dir, Kind::Float).unwrap().take("a", &[1]);
    assert_eq!(
        loaded,
        Tensor::from_slice(&[f32::from_le_bytes([1, 2, 3, 4])])
    );
}

#[test]
fn a_scalar_and_an_empty_tensor_are_loaded() {
    let dir = single(
        &json!({"s": entry("F32", &[], 0, 4), "e": entry("F32", &[0, 3], 4, 4)}),
        4,
    );
    for kind in [Kind::Float, Kind::Half] {
        let mut weights = open(&dir, kind).unwrap();
        assert_eq!(
            (
                weights.take("s", &[]).size(),
                weights.take("e", &[0, 3]).size()
            ),
            (vec![], vec![0, 3])
        );
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let header = json!({
        "a": entry("F32", &[2], 0, 8),
        "b": entry("I32", &[1], 8, 12),
        "c": entry("F32", &[1], 12, 16),
        layout::FINAL_NORM: entry("F32", &[1], 16, 20),
    });
    let dir = single(&header, 20);
    let wanted = format!(
        "`{}`: 1 missing tensor: `d` [4]; 2 wrong tensors: `a` is [2], expected [2, 2], `b` is \
         I32, expected F32, BF16, F16 or F64; 1 unexpected tensor: `c`",
        dir.path().display()
    );
    let specs = [("a", vec![2, 2]), ("b", vec![1]), ("d", vec![4])]
        .map(|(name, shape)| (name.to_owned(), shape));
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(weights.check(&specs).unwrap_err().to_string(), wanted);
    specs
        .iter()
        .for_each(|(name, shape)| assert_eq!(weights.take(name, shape).size(), *shape));
    assert_eq!(weights.finish().unwrap_err().to_string(), wanted);
}

#[test]
fn the_output_layer_stands_in_for_the_token_table() {
    let dir = single(&json!({layout::LM_HEAD: entry("F32", &[2], 0, 8)}), 8);
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(weights.take(layout::EMBED_TOKENS, &[2]).size(), [2]);
    assert_eq!(weights.finish().unwrap()[0].0, layout::EMBED_TOKENS);
}

#[test]
fn a_checkpoint_is_cut_into_shards_and_put_together() {
    let (dir, a, b) = two_tensors();
    let specs = [("a".to_owned(), vec![2, 2]), ("b".to_owned(), vec![3])];
    write_tensors(dir.path(), &specs, Kind::Float, 16, |at| {
        [&a, &b][at].shallow_clone()
    })
    .unwrap();
    let mut names: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    let shards = [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ];
    assert_eq!(names, ["config.json", shards[0], shards[1], INDEX]);
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(
        (weights.take("a", &[2, 2]), weights.take("b", &[3])),
        (a.shallow_clone(), b.shallow_clone())
    );
    weights.finish().unwrap();
    write_tensors(dir.path(), &specs, Kind::Float, 100, |at| {
        [&a, &b][at].shallow_clone()
    })
    .unwrap();
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        2,
        "config.json and one file"
    );
}

#[test]
fn random_weights_depend_on_seed_and_name_alone() {
    let take = |seed, names: &[&str]| -> BTreeMap<String, Tensor> {
        let mut weights = Weights::random(seed, Device::Cpu, Kind::Float);
        names
            .iter()
            .for_each(|name| drop(weights.take(name, &[300, 700])));
        weights.finish().unwrap().into_iter().collect()
    };
    let (one, other) = (take(1, &["a", "b"]), take(1, &["b", "a"]));
    assert_eq!((&one["a"], &one["b"]), (&other["a"], &other["b"]));
    assert_ne!(one["a"], one["b"]);
    assert_ne!(one["a"], take(2, &["a"])["a"]);
}

#[test]
fn random_weights_are_normal_and_norms_are_one() {
    let mut weights = Weights::random(0, Device::Cpu, Kind::Float);
    let normal = weights.take("proj.weight", &[1500, 1500]);
    let (mean, deviation) = (
        normal.mean(Kind::Float).double_value(&[]),
        normal.std(true).double_value(&[]),
    );
    assert!(
        mean.abs() < 1e-4 && (deviation - 0.02).abs() < 1e-4,
        "mean {mean}, deviation {deviation}"
    );
    let beyond = normal
        .abs()
        .gt(0.04)
        .to_kind(Kind::Float)
        .mean(Kind::Float)
        .double_value(&[]);
    assert!(
        (beyond - 0.0455).abs() < 1e-3,
        "{beyond} is beyond two deviations"
    );
    for (name, value) in [
        ("x.norm1.weight", 1.0),
        ("vlln.weight", 1.0),
        ("x.norm1.bias", 0.0),
        ("x.layer1.b", 0.0),
    ] {
        assert_eq!(
            weights.take(name, &[3]),
            Tensor::full([3], value, (Kind::Float, Device::Cpu)),
            "{name}"
        );
    }
    assert_ne!(
        weights.take("norm1.linear.weight", &[2, 2]),
        Tensor::ones([2, 2], (Kind::Float, Device::Cpu))
    );
}
