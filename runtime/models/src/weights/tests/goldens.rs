use std::path::PathBuf;

use super::*;
use crate::gr00t::model::Gr00t;
use crate::gr00t::{ModelConfig, VlmConfig};

/// Returns the folders of `$RRUN_GOLDENS`, by default the committed ones, that contain a
/// checkpoint.
pub(super) fn checkpoints() -> Vec<PathBuf> {
    let committed = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/gr00t");
    let goldens = std::env::var_os("RRUN_GOLDENS").map_or_else(committed, PathBuf::from);
    let cases = fs::read_dir(goldens)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let cases: Vec<_> = cases
        .filter(|case| case.join("config.json").is_file())
        .collect();
    assert!(!cases.is_empty(), "there are golden checkpoints");
    cases
}

/// tch's own reader, which uses another version of the same format's crate, agrees on every value.
#[test]
fn every_golden_has_the_values_that_another_reader_finds() {
    for case in checkpoints() {
        let (model, vlm) = ModelDir::open(&case, None).unwrap().configs().unwrap();
        let specs: BTreeMap<_, _> = Gr00t::tensors(&model, &vlm).into_iter().flatten().collect();
        let paths = fs::read_dir(&case).unwrap();
        let paths = paths.map(|entry| entry.unwrap().path());
        let is_shard = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy();
            name.starts_with("model") && name.ends_with(".safetensors")
        };
        for path in paths.filter(is_shard) {
            for (name, wanted) in Tensor::read_safetensors(&path).unwrap() {
                let Some(shape) = specs.get(&name) else {
                    continue;
                };
                let mut weights = Weights::open(&case, Device::Cpu, wanted.kind()).unwrap();
                assert_eq!(weights.take(&name, shape), wanted, "{name}");
            }
        }
    }
}

#[test]
fn the_released_network_has_its_published_size_and_takes_nothing_twice() {
    let specs = Gr00t::tensors(&ModelConfig::released(), &VlmConfig::released()).concat();
    let parameters: i64 = specs
        .iter()
        .map(|(_, shape)| shape.iter().product::<i64>())
        .sum();
    assert_eq!(parameters / 1_000_000, 3_144);
    let names: BTreeMap<_, _> = specs.iter().cloned().collect();
    assert_eq!(names.len(), specs.len());
}
