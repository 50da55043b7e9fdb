//! Ranks as separate processes, each with a GPU.

use std::process::Child;
use std::time::Duration;

use tcpstore::Store;

use crate::dist::{child, ranks};

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

/// Starts rank `rank` of `world` with the GPU `card`: `test` again, in which [`seat`] returns it.
pub fn start<T: Fn()>(test: T, store: &Store, (rank, world): (usize, usize), card: usize) -> Child {
    let seat = [usize::from(store.port()), rank, world, card].map(|number| number.to_string());
    child::again(test, &seat.join(" ")).spawn().unwrap()
}

/// Returns the seat of this process; `None` in the test itself.
pub fn seat() -> Option<Seat> {
    let text = child::told()?;
    let numbers: Vec<usize> = text
        .split(' ')
        .map(|number| number.parse().unwrap())
        .collect();
    let [port, rank, world, card] = numbers[..] else {
        panic!("the seat is {text:?}")
    };
    let store = ranks::join(u16::try_from(port).unwrap());
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
