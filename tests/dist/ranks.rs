//! Ranks as threads of this process with one store.

use std::thread;
use std::time::Duration;
use tcpstore::{Store, StoreAddr};

/// A time limit that is long enough for a loaded machine; no test that passes waits for it.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn serve() -> Store {
    Store::connect(&StoreAddr::local(0), 1, true, PATIENCE).unwrap()
}

pub fn join(port: u16) -> Store {
    Store::connect(&StoreAddr::local(port), 1, false, PATIENCE).unwrap()
}

/// Runs `body` on `world` ranks, each with its own connection, and returns the results.
pub fn ranks<T: Send>(world: usize, body: impl Fn(usize, Store) -> T + Sync) -> Vec<T> {
    let server = serve();
    thread::scope(|scope| {
        let rank = |rank| {
            scope.spawn({
                let (body, port) = (&body, server.port());
                move || body(rank, join(port))
            })
        };
        let running: Vec<_> = (0..world).map(rank).collect();
        running
            .into_iter()
            .map(|rank| rank.join().unwrap())
            .collect()
    })
}
