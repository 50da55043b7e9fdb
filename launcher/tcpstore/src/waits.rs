//! The index of waits: which client waits for which keys. Pure.
//!
//! A client has at most one wait. A key that has appeared counts for good, even if it is deleted
//! before the other keys appear. A wait for many keys may begin in parts, and cannot end before its
//! last part has begun.
//!
//! The entries of a cancelled wait stay in the lists of its keys until they outnumber the live
//! ones; then all lists are swept. A client that disconnects therefore costs no search through the
//! keys that it has waited for.

use std::collections::{HashMap, VecDeque};

use crate::limits::{ENTRY, WAIT_ENTRY};

/// Least number of stale entries that are worth a sweep.
const SWEEP: usize = 1024;

/// Identifies one connection; ids are not reused during the life of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreClientId(pub u64);

/// All waits that are not over.
#[derive(Debug, Default)]
pub struct StoreWaits {
    current: HashMap<StoreClientId, Wait>,
    /// The waits for each key, in the order in which they began. No list is empty.
    waiters: HashMap<Box<[u8]>, VecDeque<Waiter>>,
    next: WaitNumber,
    /// Number of entries in all lists.
    entries: usize,
    /// Number of entries of cancelled waits.
    stale: usize,
    /// Bytes of all keys in `waiters`.
    key_bytes: usize,
}

/// Sequence number of a wait; an earlier wait has a smaller one.
type WaitNumber = u64;

type Waiter = (WaitNumber, StoreClientId);

#[derive(Debug)]
struct Wait {
    turn: WaitNumber,
    /// Number of keys that have not appeared.
    missing: usize,
    /// Whether all parts of the wait have begun.
    is_whole: bool,
}

impl StoreWaits {
    /// Adds these keys to the wait of a client; none of them may exist. More may be added by later
    /// parts. The client must not have a whole wait.
    pub fn begin_part<'a>(
        &mut self,
        client: StoreClientId,
        keys: impl IntoIterator<Item = &'a [u8]>,
    ) {
        let next = self.next;
        self.next += 1;
        let wait = self.current.entry(client).or_insert(Wait {
            turn: next,
            missing: 0,
            is_whole: false,
        });
        let waiter = (wait.turn, client);
        for key in keys {
            let waiters = match self.waiters.get_mut(key) {
                Some(waiters) => waiters,
                None => {
                    self.key_bytes += key.len();
                    self.waiters.entry(Box::from(key)).or_default()
                }
            };
            // A key may be named twice.
            if let Err(place) = waiters.binary_search(&waiter) {
                waiters.insert(place, waiter);
                wait.missing += 1;
                self.entries += 1;
            }
        }
    }

    /// Marks the wait as whole. Returns whether it is over by that.
    pub fn end_parts(&mut self, client: StoreClientId) -> bool {
        if let Some(wait) = self.current.get_mut(&client) {
            wait.is_whole = true;
        }
        self.is_over(client)
    }

    /// Returns whether this client has a wait of which all parts have begun.
    pub fn has_whole(&self, client: StoreClientId) -> bool {
        self.current.get(&client).is_some_and(|wait| wait.is_whole)
    }

    /// Cancels the wait of this client, if it has one.
    pub fn cancel(&mut self, client: StoreClientId) {
        let Some(wait) = self.current.remove(&client) else {
            return;
        };
        self.stale += wait.missing;
        if self.stale > SWEEP.max(self.entries / 2) {
            self.sweep();
        }
    }

    /// Handles a key that exists from now on. Returns the clients whose wait that ends, in the
    /// order in which they began to wait.
    pub fn appeared(&mut self, key: &[u8]) -> Vec<StoreClientId> {
        if self.waiters.is_empty() {
            return Vec::new(); // nearly always: no need to hash
        }
        let Some(waiters) = self.waiters.remove(key) else {
            return Vec::new();
        };
        self.key_bytes -= key.len();
        waiters
            .into_iter()
            .filter(|waiter| self.is_last(*waiter))
            .map(|(_, client)| client)
            .collect()
    }

    /// Handles a value that only one client can take: returns the first client whose wait that
    /// ends. The key also counts as seen for clients before it that wait for more keys.
    pub fn appeared_for_one(&mut self, key: &[u8]) -> Option<StoreClientId> {
        loop {
            let waiters = self.waiters.get_mut(key)?;
            let waiter = waiters.pop_front();
            if waiters.is_empty() {
                self.waiters.remove(key);
                self.key_bytes -= key.len();
            }
            let (turn, client) = waiter?;
            if self.is_last((turn, client)) {
                return Some(client);
            }
        }
    }

    /// Returns the approximate memory that the waits take, in bytes.
    pub fn held(&self) -> usize {
        self.entries * WAIT_ENTRY + self.waiters.len() * 2 * ENTRY + self.key_bytes
    }

    /// Returns the approximate upper limit of the memory that waiting for these keys would add, in
    /// bytes.
    pub fn cost<'a>(keys: impl IntoIterator<Item = &'a [u8]>) -> usize {
        keys.into_iter()
            .map(|key| WAIT_ENTRY + 2 * ENTRY + key.len())
            .sum()
    }

    /// Returns whether no client waits.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.current.is_empty() && self.entries == self.stale
    }

    /// Counts a key of this client's wait as seen; its entry has left its list. Returns whether the
    /// wait is over by that.
    fn is_last(&mut self, (turn, client): Waiter) -> bool {
        self.entries -= 1;
        match self.current.get_mut(&client) {
            Some(wait) if wait.turn == turn => wait.missing -= 1,
            _ => {
                self.stale -= 1;
                return false;
            }
        }
        self.is_over(client)
    }

    fn is_over(&mut self, client: StoreClientId) -> bool {
        let is_over = self
            .current
            .get(&client)
            .is_some_and(|wait| wait.is_whole && wait.missing == 0);
        if is_over {
            self.current.remove(&client);
        }
        is_over
    }

    fn sweep(&mut self) {
        let StoreWaits {
            current,
            waiters,
            key_bytes,
            ..
        } = self;
        waiters.retain(|key, waiters| {
            waiters.retain(|(turn, client)| {
                current.get(client).is_some_and(|wait| wait.turn == *turn)
            });
            if waiters.is_empty() {
                *key_bytes -= key.len();
            }
            !waiters.is_empty()
        });
        self.entries -= std::mem::take(&mut self.stale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StoreClientId = StoreClientId(1);
    const B: StoreClientId = StoreClientId(2);

    fn begin(waits: &mut StoreWaits, client: StoreClientId, keys: &[&'static str]) {
        waits.begin_part(client, keys.iter().map(|key| key.as_bytes()));
        assert!(!waits.end_parts(client));
    }

    #[test]
    fn waits_that_begin_and_are_cancelled_for_ever_leave_nothing_behind() {
        let mut waits = StoreWaits::default();
        for turn in 0..10_000_u32 {
            let key = (turn % 100).to_le_bytes();
            waits.begin_part(A, [&key[..], b"never"]);
            waits.cancel(A);
        }
        assert!(
            waits.held() < 4 * SWEEP * (WAIT_ENTRY + ENTRY),
            "{}",
            waits.held()
        );
        begin(&mut waits, A, &["never"]);
        assert_eq!(waits.appeared(b"never"), [A]);
    }

    #[test]
    fn what_waits_take_is_counted_and_given_back() {
        let mut waits = StoreWaits::default();
        let keys: Vec<[u8; 4]> = (0..10 * SWEEP as u32).map(u32::to_le_bytes).collect();
        let keys = || keys.iter().map(|key| &key[..]);
        waits.begin_part(A, keys());
        assert_eq!(waits.held(), StoreWaits::cost(keys()));
        waits.begin_part(B, keys());
        assert!(
            waits.held() < 2 * StoreWaits::cost(keys()),
            "keys are there once"
        );
        waits.cancel(A);
        waits.cancel(B);
        assert_eq!(waits.held(), 0);
    }
}
