//! Tests of weights that are uploaded ahead through pinned memory, compared with weights that are
//! copied one by one.

use std::path::Path;

use models::Weights;
use models::gr00t::ModelDir;
use models::gr00t::model::Gr00t;
use models::weights::JointSpec;
use tch::{Device, Kind, Tensor};

use crate::gpu::card::{card, device};
use crate::parity::case::cases;

/// Returns the tensors of a checkpoint on the CPU, after loading them to `device`, ahead or not.
fn loaded(
    dir: &Path,
    specs: &[JointSpec],
    (device, kind): (Device, Kind),
    is_ahead: bool,
) -> Vec<Tensor> {
    let _no_grad = tch::no_grad_guard();
    let mut weights = Weights::open(dir, device, kind).unwrap();
    if is_ahead {
        weights.ahead(specs).unwrap();
    }
    let tensors: Vec<_> = specs.iter().map(|specs| weights.joint(specs)).collect();
    weights.finish().unwrap();
    assert!(
        tensors
            .iter()
            .all(|tensor| tensor.device() == device && tensor.kind() == kind)
    );
    tensors
        .into_iter()
        .map(|tensor| tensor.to_device(Device::Cpu))
        .collect()
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_every_golden_has_the_same_bits_on_the_card() {
    let device = device();
    for case in cases() {
        let (model, vlm) = ModelDir::open(&case.dir, None).unwrap().configs().unwrap();
        let specs = Gr00t::tensors(&model, &vlm);
        for kind in [Kind::Float, Kind::BFloat16] {
            let expected = loaded(&case.dir, &specs, (Device::Cpu, kind), false);
            for is_ahead in [true, false] {
                let found = loaded(&case.dir, &specs, (device, kind), is_ahead);
                let name = case.name();
                assert!(found == expected, "{name} {kind:?}, ahead: {is_ahead}");
            }
        }
    }
}

/// 400 MB, six times the size of all buffers; every value differs from its neighbours.
#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_checkpoint_larger_than_all_buffers_arrives() {
    let device = device();
    let dir = tempfile::tempdir().unwrap();
    let big = Tensor::arange(90_000_000, (Kind::Int, Device::Cpu))
        .remainder(65_521)
        .to_kind(Kind::Float)
        .view([300, -1]);
    let mut named = vec![("big".to_owned(), big)];
    let on = (Kind::Float, Device::Cpu);
    named.extend((0..500).map(|at| (format!("t{at:03}"), Tensor::arange(at, on))));
    named.push(("last".to_owned(), Tensor::randn([10_000_001], on)));
    Tensor::write_safetensors(&named, dir.path().join("model.safetensors")).unwrap();
    let specs: Vec<_> = named
        .iter()
        .map(|(name, tensor)| vec![(name.clone(), tensor.size())])
        .collect();
    for kind in [Kind::Float, Kind::BFloat16] {
        let expected = loaded(dir.path(), &specs, (Device::Cpu, kind), false);
        let found = loaded(dir.path(), &specs, (device, kind), true);
        assert!(found == expected, "{kind:?}");
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_weights_that_do_not_fit_are_an_error_that_says_so() {
    let Some(card) = card() else { return };
    // Memory that other tests have freed still belongs to libtorch, and would be used for the
    // weights.
    card.cuda.empty_cache().unwrap();
    let total = card.cuda.device(card.index).unwrap().total_bytes;
    // The driver counts libtorch's cached memory as free only after it is released.
    card.cuda.empty_cache().unwrap();
    let free = card.cuda.memory(card.index).unwrap().free_bytes;
    // All but 100 MB.
    let held = Tensor::f_empty(
        [free.saturating_sub(100 << 20).cast_signed()],
        (Kind::Uint8, card.device()),
    )
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let big = Tensor::zeros([50_000_000], (Kind::Float, Device::Cpu));
    let named = vec![("big".to_owned(), big)];
    Tensor::write_safetensors(&named, dir.path().join("model.safetensors")).unwrap();
    let mut weights = Weights::open(dir.path(), card.device(), Kind::Float).unwrap();
    let text = weights
        .ahead(&[vec![("big".to_owned(), vec![50_000_000])]])
        .unwrap_err()
        .to_string();
    println!("of {total} bytes {free} were free: {text}");
    assert!(
        text.contains("200000000 bytes of weights cannot be brought to")
            && text.contains("out of memory"),
        "{text}"
    );
    drop((held, weights));
    card.cuda.empty_cache().unwrap();
}
