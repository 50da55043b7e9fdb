use std::path::PathBuf;

use super::*;
use crate::model::Gr00t;

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

#[test]
fn every_golden_has_the_tensors_of_its_layout() {
    for case in checkpoints() {
        let (model, vlm) = ModelDir::open(&case, None).unwrap().configs().unwrap();
        let specs = layout::tensors(&model, &vlm);
        for kind in [Kind::Float, Kind::BFloat16] {
            let mut weights = Weights::open(&case, Device::Cpu, kind).unwrap();
            weights.check(&specs).unwrap();
            let taken = take_all(&mut weights, &specs);
            assert!(taken.iter().all(|tensor| tensor.kind() == kind));
            assert_eq!(weights.finish().unwrap().len(), specs.len());
        }
    }
}

/// tch's own reader, which uses another version of the same format's crate, agrees on every value.
#[test]
fn every_golden_has_the_values_that_another_reader_finds() {
    for case in checkpoints() {
        let (model, vlm) = ModelDir::open(&case, None).unwrap().configs().unwrap();
        let specs: BTreeMap<_, _> = layout::tensors(&model, &vlm).into_iter().collect();
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

/// The network is built from exactly the tensors that the layout lists.
#[test]
fn the_network_takes_the_tensors_of_its_layout() {
    for case in checkpoints() {
        let (model, vlm) = ModelDir::open(&case, None).unwrap().configs().unwrap();
        let mut weights = Weights::random(0, Device::Cpu, Kind::Float);
        drop(Gr00t::new(&mut weights, &model, &vlm));
        let taken = weights.finish().unwrap().into_iter();
        let taken: BTreeMap<_, _> = taken.map(|(name, tensor)| (name, tensor.size())).collect();
        assert_eq!(taken, layout::tensors(&model, &vlm).into_iter().collect());
    }
}
