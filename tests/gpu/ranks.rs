//! Ranks as separate processes, each with a GPU: this test program, started again with the name of
//! one test.

use std::env;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use c10d::{Store, StoreAddr};

/// A time limit that is long enough for NCCL's first rendezvous; no test that passes waits for it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Rank, world size, store and GPU of a started process.
pub struct Seat {
    pub store: Store,
    pub rank: usize,
    pub world: usize,
    /// CUDA index of its GPU.
    pub card: usize,
}

pub fn serve() -> Store {
    Store::connect(&local(0), 1, true, PATIENCE).unwrap()
}

/// Starts rank `rank` of `world` with the GPU `card`; `role` is the path of an ignored test of this
/// program.
pub fn start(role: &str, store: &Store, (rank, world): (usize, usize), card: usize) -> Child {
    let mut program = Command::new(env::current_exe().unwrap());
    program
        .args(["--exact", role, "--ignored", "--nocapture"])
        .stdin(Stdio::null());
    let seat = [usize::from(store.port()), rank, world, card].map(|number| number.to_string());
    program
        .env("RRUN_TEST_SEAT", seat.join(" "))
        .spawn()
        .unwrap()
}

/// Returns the seat of this process; `None` if `--ignored` runs a role as a test.
pub fn seat() -> Option<Seat> {
    let text = env::var("RRUN_TEST_SEAT").ok()?;
    let numbers: Vec<usize> = text
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [port, rank, world, card] = numbers[..] else {
        panic!("RRUN_TEST_SEAT is {text:?}")
    };
    let store = Store::connect(&local(u16::try_from(port).unwrap()), 1, false, PATIENCE).unwrap();
    Some(Seat {
        store,
        rank,
        world,
        card,
    })
}

/// Waits for all ranks and checks that each has succeeded.
pub fn all_succeed(ranks: Vec<Child>) {
    let codes: Vec<_> = ranks
        .into_iter()
        .map(|mut rank| rank.wait().unwrap().code())
        .collect();
    assert!(
        codes.iter().all(|code| *code == Some(0)),
        "exit codes of the ranks: {codes:?}"
    );
}

fn local(port: u16) -> StoreAddr {
    StoreAddr {
        host: "127.0.0.1".to_owned(),
        port,
    }
}
