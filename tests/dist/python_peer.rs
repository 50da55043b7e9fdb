//! Tests of Rust and Python ranks in one Gloo group, with torch 2.11 on both sides.

use crate::dist::ranks::{PATIENCE, join, serve};
use c10d::{ProcessGroup, Reduction, Store, StoreAddr};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use tch::Tensor;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Returns whether Python can import torch: the minimal install has libtorch, but not the NVIDIA
/// libraries that Python needs.
fn python_has_torch() -> bool {
    let pythons = Path::new(ROOT)
        .join(".venv/lib")
        .read_dir()
        .into_iter()
        .flatten()
        .flatten();
    let mut installs = pythons.map(|python| python.path().join("site-packages"));
    installs
        .any(|install| install.join("torch").exists() && install.join("nvidia/cusparselt").exists())
}

/// Returns a free port outside the range of the other tests' sockets (32768 and up).
fn free_port() -> u16 {
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    (first..32_000)
        .find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        .unwrap()
}

fn start_python(rank: usize, world: usize, port: u16, agent_store: &str) -> Child {
    let mut python = Command::new(format!("{ROOT}/.venv/bin/python"));
    python.arg(format!("{ROOT}/tests/fixtures/gloo_peer.py"));
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
    if !python_has_torch() {
        eprintln!("skipped: no Python torch in .venv");
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
    if !python_has_torch() {
        eprintln!("skipped: no Python torch in .venv");
        return;
    }
    let port = free_port();
    let python = start_python(0, 2, port, "False");
    let store = Store::connect(&StoreAddr::local(port), 2, false, PATIENCE).unwrap();
    work_together(&store, 1, 2);
    succeeds(python);
}
