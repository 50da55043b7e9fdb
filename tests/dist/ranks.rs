//! Ranks as threads of this process with one store.

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
    let port = server.port();
    rig::together(world, |rank| body(rank, join(port)))
}
