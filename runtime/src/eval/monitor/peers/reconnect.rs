//! Reconnects to a store on a thread of its own: the steps of the simulation go on meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use tcpstore::{Store, StoreAddr, StoreError};

use crate::clock::now;
use crate::eval::monitor::Every;

/// Time limit of one attempt.
const LIMIT: Duration = Duration::from_secs(2);

/// An attempt may take somewhat longer than its limit.
pub const LONGEST: Duration = Duration::from_secs(6);

/// Time from the start of an attempt to the next one, while there is something else to do.
pub const EVERY: Duration = Duration::from_secs(5);

/// The attempts to reconnect to one store.
pub struct Reconnect {
    addr: StoreAddr,
    world_size: usize,
    /// When the last attempt began.
    tried: Every,
    /// The attempt that is under way.
    attempt: Option<Receiver<Result<Store, StoreError>>>,
}

impl Reconnect {
    /// Creates the attempts to reach the store at `addr`; none has begun.
    pub fn new(addr: StoreAddr, world_size: usize) -> Self {
        Self {
            addr,
            world_size,
            tried: Every::default(),
            attempt: None,
        }
    }

    /// Begins an attempt, unless one is under way or began less than `pause` ago.
    pub fn begin(&mut self, pause: Duration) {
        if self.attempt.is_some() || !self.tried.due(pause, now()) {
            return;
        }
        let (done, attempt) = channel();
        let (addr, world_size) = (self.addr.clone(), self.world_size);
        let connect = move || drop(done.send(Store::connect(&addr, world_size, false, LIMIT)));
        let named = thread::Builder::new().name("rrun-reconnect".to_owned());
        match named.spawn(connect) {
            Ok(_) => self.attempt = Some(attempt),
            Err(err) => tracing::warn!(%err, "no thread to reach the store again"),
        }
    }

    /// Waits for the end of the attempt that is under way, and returns its store if it succeeds.
    pub fn ended_within(&mut self, wait: Duration) -> Option<Store> {
        let connected = self.attempt.as_ref()?.recv_timeout(wait);
        if matches!(connected, Err(RecvTimeoutError::Timeout)) {
            return None;
        }
        self.attempt = None;
        let connected = connected.ok()?;
        connected
            .inspect(|_| tracing::warn!(addr = %self.addr, "connected to the store again"))
            .inspect_err(|err| tracing::warn!(%err, "the store is unreachable"))
            .ok()
    }
}
