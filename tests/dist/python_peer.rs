//! Tests of Rust and Python ranks in one Gloo group, with torch 2.11 on both sides.

use crate::dist::ranks::{PATIENCE, join, serve};
use c10d::{ProcessGroup, Reduction, Store, StoreAddr};
use rig::need::{Need, need};
use std::process::{Child, Command};
use std::thread;
use tch::Tensor;

fn start_python(rank: usize, world: usize, port: u16, agent_store: &str) -> Child {
    let mut python = Command::new(rig::PYTHON);
    python.arg(rig::fixture("gloo_peer.py"));
    python
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", world.to_string());
    python
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string());
    python
        .env("TORCHELASTIC_USE_AGENT_STORE", agent_store)
        .env("OMP_NUM_THREADS", "1")
        .spawn()
        .unwrap()
}

/// Makes the same calls as `fixtures/gloo_peer.py`.
fn work_together(store: &Store, rank: usize, world: usize) {
    let group = ProcessGroup::gloo(&store.default_group("cpu"), rank, world, PATIENCE).unwrap();
    let mut total = Tensor::from_slice(&[rank as f32 + 1.0; 4]);
    group.all_reduce(&mut total, Reduction::Sum).unwrap();
    assert_eq!(
        Vec::<f32>::try_from(total).unwrap(),
        vec![(world * (world + 1) / 2) as f32; 4]
    );
    let mut shared = Tensor::from_slice(&[rank as f64; 2]);
    group.broadcast(&mut shared, world - 1).unwrap();
    assert_eq!(
        Vec::<f64>::try_from(shared).unwrap(),
        vec![world as f64 - 1.0; 2]
    );
    let parts = group.all_gather_bytes(&vec![b'x'; rank]).unwrap();
    assert_eq!(
        parts,
        (0..world)
            .map(|other| vec![b'x'; other])
            .collect::<Vec<_>>()
    );
    group.barrier().unwrap();
}

fn succeeds(mut peer: Child) {
    assert_eq!(
        peer.wait().unwrap().code(),
        Some(0),
        "exit code of the Python rank"
    );
}

#[test]
fn two_rust_and_two_python_ranks_are_one_group() {
    if !need(Need::Torch) {
        return;
    }
    let server = serve();
    let python = [2, 3].map(|rank| start_python(rank, 4, server.port(), "True"));
    thread::scope(|scope| {
        let port = server.port();
        scope.spawn(move || work_together(&join(port), 0, 4));
        scope.spawn(move || work_together(&join(port), 1, 4));
    });
    python.into_iter().for_each(succeeds);
}

#[test]
fn a_rust_rank_joins_a_group_whose_store_python_hosts() {
    if !need(Need::Torch) {
        return;
    }
    let port = rig::net::port();
    let python = start_python(0, 2, port, "False");
    let store = Store::connect(&StoreAddr::local(port), 2, false, PATIENCE).unwrap();
    work_together(&store, 1, 2);
    succeeds(python);
}
