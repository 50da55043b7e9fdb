use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::gr00t::ModelDir;
use crate::weights::checkpoint::{INDEX, SINGLE};

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

const F32: (Kind, Device) = (Kind::Float, Device::Cpu);

/// Names tensors of these shapes.
fn specs<const N: usize>(named: [(&str, &[i64]); N]) -> [JointSpec; N] {
    named.map(|(name, shape)| vec![(name.to_owned(), shape.to_vec())])
}

/// Takes all tensors of `specs`.
fn take_all(weights: &mut Weights, specs: &[JointSpec]) -> Vec<Tensor> {
    specs.iter().map(|specs| weights.joint(specs)).collect()
}

/// Creates a directory with these files.
fn directory(files: &[(&str, Vec<u8>)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        fs::write(dir.path().join(name), bytes).unwrap();
    }
    dir
}

/// Creates a checkpoint with a single file.
fn single(header: &Value, size: u8) -> TempDir {
    directory(&[("model.safetensors", safetensors(&header.to_string(), size))])
}

/// Writes `a` `[2, 2]` and `b` `[3]` of type F32 with tch's writer.
fn two_tensors() -> (TempDir, Tensor, Tensor) {
    let a = Tensor::from_slice(&[1.5_f32, -2.0, 3.25, 4.0]).view([2, 2]);
    let b = Tensor::from_slice(&[5.0_f32, 6.0, 7.0]);
    let dir = written(&[("a", &a), ("b", &b)]);
    (dir, a, b)
}

fn of_two_tensors() -> [JointSpec; 2] {
    specs([("a", &[2, 2]), ("b", &[3])])
}

/// Writes a checkpoint in one file.
fn written<S: AsRef<str>, T: AsRef<Tensor>>(named: &[(S, T)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    Tensor::write_safetensors(named, dir.path().join(SINGLE)).unwrap();
    dir
}

/// Returns the weights that a network takes, with random values.
pub(crate) fn random(seed: i64, network: impl FnOnce(&mut Weights)) -> Weights {
    tch::manual_seed(seed);
    let specs = Weights::record(network).into_iter().flatten();
    let named: BTreeMap<_, _> = specs
        .map(|(name, shape)| {
            (
                name,
                Tensor::randn(shape, (Kind::Float, Device::Cpu)) * 0.02,
            )
        })
        .collect();
    let dir = written(&named.into_iter().collect::<Vec<_>>());
    open(&dir, Kind::Float).unwrap()
}

#[test]
fn a_long_list_is_cut() {
    let problem = |at: i32| Problem {
        kind: "unexpected",
        text: at.to_string(),
    };
    let text = told(&(0..25).map(problem).collect::<Vec<_>>());
    assert!(
        text.starts_with("25 unexpected tensors: 0, ") && text.ends_with("19 and 5 more"),
        "{text}"
    );
}

fn open(dir: &TempDir, kind: Kind) -> Result<Weights, Refusal> {
    Weights::open(dir.path(), Device::Cpu, kind)
}

fn refusal(dir: &TempDir) -> String {
    open(dir, Kind::Float).err().unwrap().to_string()
}

#[test]
fn joint_tensors_follow_each_other_and_what_lacks_is_told_of_each_part() {
    let (dir, a, _) = two_tensors();
    let twice = [("a".to_owned(), vec![2, 2]), ("a".to_owned(), vec![2, 2])];
    let mut weights = open(&dir, Kind::BFloat16).unwrap();
    let joint = weights.joint(&twice).to_kind(Kind::Float);
    assert_eq!(joint, Tensor::cat(&[&a, &a], 0));
    let lacking = [("c".to_owned(), vec![3, 2]), ("b".to_owned(), vec![4, 2])];
    assert_eq!(weights.joint(&lacking).size(), [7, 2]);
    let told = weights.finish().unwrap_err().to_string();
    let wanted = "1 missing tensor: `c` [3, 2]; 1 wrong tensor: `b` is [3], expected [4, 2]";
    assert!(told.ends_with(wanted), "{told}");
}

#[test]
fn what_a_network_takes_is_recorded_without_memory() {
    let large = vec![1 << 40, 1 << 10];
    let parts = [("a".to_owned(), large.clone()), ("b".to_owned(), large)];
    let found = Weights::record(|weights| {
        assert_eq!(weights.joint(&parts).size(), [1 << 41, 1 << 10]);
        drop(weights.take("c", &[]));
    });
    assert_eq!(found, [parts.to_vec(), vec![("c".to_owned(), vec![])]]);
}

#[test]
fn the_same_type_is_a_view_of_the_file() {
    let (dir, ..) = two_tensors();
    let mut weights = open(&dir, Kind::Float).unwrap();
    let places = [(); 2].map(|()| weights.take("a", &[2, 2]).data_ptr());
    assert_eq!(places[0], places[1]);
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
fn a_large_tensor_is_converted_in_pieces() {
    let values = Tensor::arange(40_000_000, F32).remainder(256).view([4, -1]);
    let dir = written(&[("a", &Tensor::zeros([3], F32)), ("b", &values)]);
    let mut weights = open(&dir, Kind::BFloat16).unwrap();
    let loaded = weights.take("b", &[4, 10_000_000]);
    assert_eq!(loaded.to_kind(Kind::Float), values);
}

#[test]
fn a_tensor_at_an_odd_place_is_copied() {
    let header = json!({"pad": entry("U8", &[1], 0, 1), "a": entry("F32", &[1], 1, 5)});
    let loaded = open(&single(&header, 5), Kind::Float)
        .unwrap()
        .take("a", &[1]);
    let wanted = f32::from_le_bytes([1, 2, 3, 4]);
    assert_eq!(loaded, Tensor::from_slice(&[wanted]));
}

#[test]
fn a_scalar_and_an_empty_tensor_are_loaded() {
    let header = json!({"s": entry("F32", &[], 0, 4), "e": entry("F32", &[0, 3], 4, 4)});
    let dir = single(&header, 4);
    for kind in [Kind::Float, Kind::Half] {
        let mut weights = open(&dir, kind).unwrap();
        assert_eq!(weights.take("s", &[]).size(), [0; 0]);
        assert_eq!(weights.take("e", &[0, 3]).size(), [0, 3]);
    }
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let header = json!({
        "a": entry("F32", &[2], 0, 8),
        "b": entry("I32", &[1], 8, 12),
        "c": entry("F32", &[1], 12, 16),
        REDUNDANT[1]: entry("F32", &[1], 16, 20),
    });
    let dir = single(&header, 20);
    let wanted = format!(
        "`{}`: 1 missing tensor: `d` [4]; 2 wrong tensors: `a` is [2], expected [2, 2], `b` is \
         I32, expected F32, BF16, F16 or F64; 1 unexpected tensor: `c`",
        dir.path().display()
    );
    let specs = specs([("a", &[2, 2]), ("b", &[1]), ("d", &[4])]);
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(weights.check(&specs).unwrap_err().to_string(), wanted);
    let taken = take_all(&mut weights, &specs);
    let fits = |(tensor, specs): (&Tensor, &JointSpec)| tensor.size() == specs[0].1;
    assert!(taken.iter().zip(&specs).all(fits));
    assert_eq!(weights.finish().unwrap_err().to_string(), wanted);
}

#[test]
fn the_output_layer_stands_in_for_the_token_table() {
    let dir = single(&json!({LM_HEAD: entry("F32", &[2], 0, 8)}), 8);
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(weights.take(EMBED_TOKENS, &[2]).size(), [2]);
    weights.finish().unwrap();
}

#[test]
fn the_shards_of_an_index_are_put_together() {
    let (dir, a, b) = two_tensors();
    fs::remove_file(dir.path().join(SINGLE)).unwrap();
    let mut weight_map = BTreeMap::new();
    for (name, tensor) in [("a", &a), ("b", &b)] {
        let file = format!("{name}.safetensors");
        Tensor::write_safetensors(&[(name, tensor)], dir.path().join(&file)).unwrap();
        weight_map.insert(name, file);
    }
    let index = json!({"weight_map": weight_map}).to_string();
    fs::write(dir.path().join(INDEX), index).unwrap();
    let mut weights = open(&dir, Kind::Float).unwrap();
    assert_eq!(take_all(&mut weights, &of_two_tensors()), [a, b]);
    weights.finish().unwrap();
}
