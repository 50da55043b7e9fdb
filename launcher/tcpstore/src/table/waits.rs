//! Which waits are for which keys. Pure.
//!
//! A wait that is dropped is over for its client. Its entries stay in the lists of its keys until a
//! list would grow, or lists of such entries alone may outnumber the others; then they are swept. A
//! client that disconnects therefore costs no search through the keys that it has waited for.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use tokio::sync::Notify;

use crate::budget::{Budget, Charge};
use crate::error::StoreRefusal;
use crate::limits::{ENTRY, WAIT_ENTRY};

/// Least number of lists that are worth a sweep.
const SWEEP: usize = 1024;

/// A client's wait for keys; dropping it cancels it.
#[derive(Debug)]
pub struct Wait(Arc<Missing>);

/// The keys of a wait that have not appeared.
#[derive(Debug)]
struct Missing {
    count: AtomicUsize,
    appeared: Notify,
}

/// The waits for one key, in the order in which they began, and their memory.
type Waiters = (VecDeque<Weak<Missing>>, Charge);

/// All waits that are not over.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// No list is empty.
    waiters: HashMap<Box<[u8]>, Waiters>,
    /// Number of lists after the last sweep.
    left: usize,
}

impl Wait {
    /// Returns when all keys have appeared.
    pub async fn over(&self) {
        self.0.appeared.notified().await;
    }

    /// Returns whether all keys have appeared.
    #[cfg(test)]
    pub fn is_over(&self) -> bool {
        self.0.count.load(Ordering::Relaxed) == 0
    }
}

impl Waits {
    /// Begins a wait for these keys, of which none exists.
    pub fn begin(&mut self, keys: &[&[u8]], budget: &Budget) -> Result<Wait, StoreRefusal> {
        if self.waiters.len() > SWEEP + 2 * self.left {
            self.sweep();
        }
        let wait = Wait(Arc::new(Missing {
            count: AtomicUsize::new(keys.len()),
            appeared: Notify::new(),
        }));
        for &key in keys {
            let (waiters, charge) = match self.waiters.get_mut(key) {
                Some(waiters) => waiters,
                None => {
                    let charge = budget.take(cost(key) - WAIT_ENTRY)?;
                    let waiters = self.waiters.entry(Box::from(key));
                    waiters.or_insert((VecDeque::new(), charge))
                }
            };
            if waiters.len() == waiters.capacity() {
                waiters.retain(is_awaited);
            }
            charge.resize(cost(key) + waiters.len() * WAIT_ENTRY)?;
            waiters.push_back(Arc::downgrade(&wait.0));
        }
        Ok(wait)
    }

    /// Handles a key that exists from now on.
    pub fn appeared(&mut self, key: &[u8]) {
        if self.waiters.is_empty() {
            return; // nearly always: no need to hash
        }
        if let Some((waiters, _)) = self.waiters.remove(key) {
            waiters.iter().for_each(|waiter| {
                is_last(waiter);
            });
        }
    }

    /// Handles a value that only one client can take: ends the first wait that ends by it. The key
    /// also counts as seen for those before it that wait for more keys.
    pub fn appeared_for_one(&mut self, key: &[u8]) {
        let Some((waiters, _)) = self.waiters.get_mut(key) else {
            return;
        };
        while let Some(waiter) = waiters.pop_front()
            && !is_last(&waiter)
        {}
        if waiters.is_empty() {
            self.waiters.remove(key);
        }
    }

    /// Forgets the waits that were given up.
    pub fn sweep(&mut self) {
        self.waiters.retain(|key, (waiters, charge)| {
            waiters.retain(is_awaited);
            // Giving memory back is never refused.
            let _ = charge.resize(cost(key) - WAIT_ENTRY + waiters.len() * WAIT_ENTRY);
            !waiters.is_empty()
        });
        self.left = self.waiters.len();
    }

    /// Returns whether no client waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }
}

/// Returns the memory of a wait for one key.
pub(super) fn cost(key: &[u8]) -> usize {
    2 * ENTRY + key.len() + WAIT_ENTRY
}

fn is_awaited(waiter: &Weak<Missing>) -> bool {
    waiter.strong_count() > 0
}

/// Counts a key as seen. Returns whether the wait is over by that.
fn is_last(waiter: &Weak<Missing>) -> bool {
    let Some(missing) = waiter.upgrade() else {
        return false;
    };
    let is_last = missing.count.fetch_sub(1, Ordering::Relaxed) == 1;
    if is_last {
        missing.appeared.notify_one();
    }
    is_last
}
