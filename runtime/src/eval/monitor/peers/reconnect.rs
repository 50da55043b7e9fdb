//! Reconnects to a store on a thread of its own: the steps of the simulation go on meanwhile.

use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use tcpstore::{Store, StoreAddr, StoreError};

/// Time limit of one attempt.
const LIMIT: Duration = Duration::from_secs(2);

/// Time from the start of an attempt to the next one.
const EVERY: Duration = Duration::from_secs(5);

/// The attempts to reconnect to one store.
pub struct Reconnect {
    addr: StoreAddr,
    world_size: usize,
    /// When the last attempt began.
    tried: Option<Instant>,
    /// The attempt that is under way.
    attempt: Option<Receiver<Result<Store, StoreError>>>,
}

impl Reconnect {
    /// Creates the attempts to reach the store at `addr`; none has begun.
    pub fn new(addr: StoreAddr, world_size: usize) -> Self {
        Self {
            addr,
            world_size,
            tried: None,
            attempt: None,
        }
    }

    /// Begins an attempt, at most once every few seconds.
    pub fn begin(&mut self, now: Instant) {
        let since = |tried| now.saturating_duration_since(tried);
        if self.tried.is_none_or(|tried| since(tried) >= EVERY) {
            self.begin_at_once(now);
        }
    }

    /// Begins an attempt unless one is under way.
    pub fn begin_at_once(&mut self, now: Instant) {
        if self.attempt.is_some() {
            return;
        }
        self.tried = Some(now);
        let (done, attempt) = channel();
        let (addr, world_size) = (self.addr.clone(), self.world_size);
        let connect = move || drop(done.send(Store::connect(&addr, world_size, false, LIMIT)));
        let named = thread::Builder::new().name("rrun-reconnect".to_owned());
        match named.spawn(connect) {
            Ok(_) => self.attempt = Some(attempt),
            Err(err) => tracing::warn!(%err, "no thread to reach the store again"),
        }
    }

    /// Returns the store of the attempt that is under way if it has succeeded now.
    pub fn ended(&mut self) -> Option<Store> {
        self.ended_within(Duration::ZERO)
    }

    /// Waits for the end of the attempt that is under way, and returns its store if it succeeds.
    pub fn wait(&mut self) -> Option<Store> {
        // An attempt may take somewhat longer than its limit.
        self.ended_within(LIMIT * 3)
    }

    fn ended_within(&mut self, wait: Duration) -> Option<Store> {
        let connected = match self.attempt.as_ref()?.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => return None,
            Err(RecvTimeoutError::Disconnected) => None,
            Ok(connected) => Some(connected),
        };
        self.attempt = None;
        match connected? {
            Ok(store) => {
                tracing::warn!(addr = %self.addr, "connected to the store again");
                Some(store)
            }
            Err(err) => {
                tracing::warn!(%err, "the store is unreachable");
                None
            }
        }
    }
}
