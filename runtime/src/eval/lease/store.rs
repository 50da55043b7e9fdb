//! The operations of leases in the store, on a connection of their own.

use std::thread;
use std::time::Duration;

use jobs::assign::lease::{Hold, LeaseKey, LeaseOp, LeaseReply};
use tcpstore::{Deadline, Store, StoreAddr, StoreError};

use crate::eval::Stop;

/// Time limit for the first connection to the store.
const CONNECT: Duration = Duration::from_secs(60);

/// Time limit for the answer to a request, after which the connection is taken for dead. The
/// simulation stands still as long.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Time limit of one attempt to reconnect.
const MEND_LIMIT: Duration = Duration::from_secs(5);

/// Time in which an operation has to succeed, with all attempts to reconnect: a launcher that is
/// started anew, and a machine that is busy, take some seconds.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Pause between two attempts to reconnect.
const PAUSE: Duration = Duration::from_secs(1);

/// The part of the store that has the leases.
pub struct LeaseStore {
    addr: StoreAddr,
    prefix: String,
    store: Store,
}

impl LeaseStore {
    /// Connects to the store. `prefix` is that of every key: launch, round and stage.
    ///
    /// # Errors
    /// Fails if the store cannot be reached.
    pub fn connect(addr: StoreAddr, prefix: String) -> Result<Self, Stop> {
        let store = enter(&addr, &prefix, CONNECT).map_err(told)?;
        Ok(Self {
            addr,
            prefix,
            store,
        })
    }

    /// Makes an operation whose result does not matter. If it is lost, other ranks find the
    /// episodes in the journals.
    pub fn tell(&mut self, op: &LeaseOp) -> Option<LeaseReply> {
        self.ask(op)
            .inspect_err(|err| tracing::warn!(%err, ?op, "a lease is not told"))
            .ok()
    }

    /// Makes an operation, and reconnects if the connection breaks. The store may have applied it
    /// before the connection broke. That does no harm to a swap, which sees its own result, or to
    /// `next`, where a skipped number is found by the search for free leases. A block that is
    /// counted twice in `closed` would hide another, so that operation is not repeated.
    ///
    /// # Errors
    /// Fails if the store is gone or does not answer within some time limits of [`LIMIT`].
    pub fn ask(&mut self, op: &LeaseOp) -> Result<LeaseReply, Stop> {
        let until = Deadline::after(LIMIT);
        let is_repeatable = !matches!(op, LeaseOp::Add(LeaseKey::Closed(_), 1..));
        let mut has_mended = false;
        loop {
            let failed = match request(&self.store, op) {
                Err(err) if err.is_lost() && is_repeatable => err,
                reply => return reply.map_err(told),
            };
            tracing::warn!(err = %failed, "connects to the store again");
            if std::mem::replace(&mut has_mended, true) {
                rest();
            }
            loop {
                if until.left().is_zero() {
                    return Err(told(failed));
                }
                match enter(&self.addr, &self.prefix, MEND_LIMIT.min(until.left())) {
                    Ok(store) => {
                        self.store = store;
                        break;
                    }
                    Err(_) => rest(),
                }
            }
        }
    }
}

fn told(err: StoreError) -> Stop {
    Stop::Rank(format!("leases: {err}"))
}

fn enter(addr: &StoreAddr, prefix: &str, timeout: Duration) -> Result<Store, StoreError> {
    // A server may count the ranks that connect, and this rank is counted already: it must not
    // be counted again.
    let store = Store::connect(addr, 0, false, timeout)?;
    Ok(store.prefix(prefix).answering_within(PATIENCE))
}

fn request(store: &Store, op: &LeaseOp) -> Result<LeaseReply, StoreError> {
    let find = |keys: &[LeaseKey]| store.multi_get(&names(keys));
    Ok(match op {
        LeaseOp::Add(key, delta) => LeaseReply::Sum(store.add(&key.to_string(), *delta)?),
        LeaseOp::Swap(key, from, to) => {
            let (name, from, to) = (key.to_string(), from.to_string(), to.to_string());
            let found = store.compare_set(&name, from.as_bytes(), to.as_bytes())?;
            LeaseReply::Is(hold(*key, &found)?)
        }
        LeaseOp::Sums(keys) => LeaseReply::Sums(find(keys)?.into_iter().map(sum).collect()),
        LeaseOp::Holds(keys) => {
            let found = keys.iter().zip(find(keys)?);
            let holds = found.map(|(key, text)| hold(*key, &text));
            LeaseReply::Holds(holds.collect::<Result<_, _>>()?)
        }
        LeaseOp::AreThere(keys) => LeaseReply::AreThere(store.check_all(&names(keys))?),
    })
}

fn names(keys: &[LeaseKey]) -> Vec<String> {
    keys.iter().map(LeaseKey::to_string).collect()
}

/// Returns the value of a counter, which the store has as text.
fn sum(text: Vec<u8>) -> i64 {
    let text = String::from_utf8(text);
    text.ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// Reads a value, which is not one of ours if no rank writes it.
fn hold(key: LeaseKey, text: &[u8]) -> Result<Hold, StoreError> {
    let text = String::from_utf8_lossy(text);
    text.parse()
        .map_err(|what| StoreError::Other(format!("{key}: {what}")))
}

#[expect(
    clippy::disallowed_methods,
    reason = "nothing tells when the store is there again"
)]
fn rest() {
    thread::sleep(PAUSE);
}
