//! Tests of CUDA graphs: a replay computes the same as its operators, graphs are evicted, and a
//! failed capture harms nothing.

use std::convert::Infallible;
use std::rc::Rc;

use models::gr00t::model::{Normalise, PassInputs, SamplerStart};
use models::gr00t::processor::PixelScale;
use models::graphs::{CudaEngine, Engine, Graphs, PassFn, PassShape, to_device};
use tch::{Device, Kind, Tensor};

use crate::gpu::card::{Card, card};
use crate::parity::case::{Case, cases};

fn graphs(card: &Card, cap: u64) -> Graphs {
    Graphs::new(
        Rc::new(CudaEngine::new(card.cuda, card.index).unwrap()),
        cap,
    )
}

fn run(graphs: &mut Graphs, key: &PassShape, batch: &PassInputs, pass: &PassFn) -> Tensor {
    let made = || Ok::<_, Infallible>(Rc::clone(pass));
    let Ok(out) = graphs.run(Some(key.clone()), &batch.tensors(), made);
    out.to_device(Device::Cpu)
}

/// Returns the network of a case on the GPU as a forward pass, with its batch.
fn prepared(case: &Case, card: &Card, kind: Kind) -> (PassShape, PassInputs, PassFn) {
    let network = case.network_on(card.device(), kind);
    let (key, frame, batch) = case.prepared(&network, case.embodiments()[0]);
    (
        key,
        batch,
        Rc::new(move |batch: &[Tensor]| network.pass(&frame, &PassInputs::of(batch))),
    )
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_replay_gives_what_its_operators_give() {
    let Some(card) = card() else { return };
    let _no_grad = tch::no_grad_guard();
    for case in cases() {
        for kind in [Kind::Float, Kind::BFloat16] {
            let mut graphs = graphs(&card, 8 << 30);
            let (key, batch, pass) = prepared(&case, &card, kind);
            let eager = run(&mut graphs, &key, &batch, &pass);
            assert_eq!((graphs.kept(), graphs.off()), (0, None));
            for _ in 0..3 {
                assert_eq!(
                    run(&mut graphs, &key, &batch, &pass),
                    eager,
                    "{} {kind:?}",
                    case.name()
                );
            }
            assert_eq!(
                (graphs.kept(), graphs.off()),
                (1, None),
                "{} {kind:?}",
                case.name()
            );
            // Another noise gives another result: the graph reads its new inputs.
            let other = PassInputs {
                start: SamplerStart::at(batch.start.actions.flip([0, 1])),
                ..batch.to_device(Device::Cpu)
            };
            let found = run(&mut graphs, &key, &other, &pass);
            let wanted = pass(&to_device(&other.tensors(), card.device())).to_device(Device::Cpu);
            assert_eq!(found, wanted, "{} {kind:?}", case.name());
            assert_ne!(found, eager);
        }
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_pixels_are_normalised_as_on_the_host_to_the_last_bit() {
    let Some(card) = card() else { return };
    let scale = PixelScale {
        mean: [127.5, 123.675, 116.28],
        deviation: [127.5, 58.395, 57.12],
    };
    let bytes: Vec<u8> = (0..3 * 256).map(|i| (i % 256) as u8).collect();
    let bytes = Tensor::from_slice(&bytes).view([1, 768]);
    for kind in [Kind::Float, Kind::BFloat16] {
        let here = Normalise::new(scale, Device::Cpu).apply(&bytes, kind);
        let there =
            Normalise::new(scale, card.device()).apply(&bytes.to_device(card.device()), kind);
        assert_eq!(there.to_device(Device::Cpu), here, "{kind:?}");
    }
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_graphs_that_make_room_give_their_memory_back() {
    let Some(card) = card() else { return };
    let _no_grad = tch::no_grad_guard();
    let case = cases().remove(0);
    let (key, batch, pass) = prepared(&case, &card, Kind::Float);
    let mut graphs = graphs(&card, 8 << 30);
    for _ in 0..2 {
        let _ = run(&mut graphs, &key, &batch, &pass);
    }
    assert_eq!(graphs.kept(), 1, "{:?}", graphs.off());
    let before = card.cuda.memory(card.index).unwrap().free_bytes;
    graphs.make_room();
    let after = card.cuda.memory(card.index).unwrap().free_bytes;
    println!(
        "a graph of {} held {} bytes",
        case.name(),
        after.saturating_sub(before)
    );
    assert!(after > before, "{before} bytes free, then {after}");
}

#[test]
#[ignore = "needs RRUN_DEVICE"]
fn gpu_a_capture_that_fails_leaves_the_card_usable() {
    let Some(card) = card() else { return };
    let _no_grad = tch::no_grad_guard();
    let case = cases().remove(0);
    let (key, batch, good) = prepared(&case, &card, Kind::Float);
    let device = card.device();
    // A read of the result waits for the device, which cannot be captured.
    let bad: PassFn = Rc::new(move |batch: &[Tensor]| {
        let noise = PassInputs::of(batch).start.actions;
        let sum = noise.sum(Kind::Float).double_value(&[]);
        noise
            + Tensor::from_slice(&[sum])
                .to_kind(Kind::Float)
                .to_device(device)
    });
    let mut refused = graphs(&card, 8 << 30);
    let eager = run(&mut refused, &key, &batch, &bad);
    assert_eq!(run(&mut refused, &key, &batch, &bad), eager);
    println!("refused: {:?}", refused.off());
    assert!(refused.off().is_some());
    // The allocator is back to normal, and another capture works.
    let engine = CudaEngine::new(card.cuda, card.index).unwrap();
    let many: Vec<_> = (0..8)
        .map(|_| Tensor::ones([1 << 20], (Kind::Float, device)))
        .collect();
    assert!(
        many.iter()
            .all(|ones| ones.sum(Kind::Float).double_value(&[]) == f64::from(1 << 20))
    );
    engine.trim();
    let mut graphs = graphs(&card, 8 << 30);
    let eager = run(&mut graphs, &key, &batch, &good);
    assert_eq!(run(&mut graphs, &key, &batch, &good), eager);
    assert_eq!((graphs.kept(), graphs.off()), (1, None));
}
