//! Who waits for which keys. Pure.
//!
//! A client has at most one wait. A key that has appeared counts for good, even if it is deleted before the others come.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::store::table::ClientId;

/// The waits that are not over.
#[derive(Debug, Default)]
pub struct Waits {
    missing: HashMap<ClientId, Wait>,
    /// In the order in which they began to wait. No set is empty.
    waiters: HashMap<Box<[u8]>, BTreeSet<(Turn, ClientId)>>,
    next: Turn,
}

/// A wait that began earlier has a smaller one.
type Turn = u64;

#[derive(Debug)]
struct Wait {
    turn: Turn,
    keys: HashSet<Box<[u8]>>,
}

impl Waits {
    /// Lets the client wait until all of these keys have appeared. At least one key; the client must not wait already.
    pub fn begin<'a>(&mut self, client: ClientId, keys: impl IntoIterator<Item = &'a [u8]>) {
        let (turn, keys) = (self.next, keys.into_iter().map(Box::from).collect::<HashSet<Box<[u8]>>>());
        self.next += 1;
        for key in &keys {
            self.waiters.entry(key.clone()).or_default().insert((turn, client));
        }
        self.missing.insert(client, Wait { turn, keys });
    }

    /// Whether this client waits.
    pub fn has(&self, client: ClientId) -> bool {
        self.missing.contains_key(&client)
    }

    /// Ends the wait of this client, if it has one.
    pub fn cancel(&mut self, client: ClientId) {
        let Some(Wait { turn, keys }) = self.missing.remove(&client) else { return };
        for key in keys {
            self.forget(&key, (turn, client));
        }
    }

    /// A key is there for everybody: those whose wait that ends, first come first.
    pub fn appeared(&mut self, key: &[u8]) -> Vec<ClientId> {
        if self.waiters.is_empty() {
            return Vec::new(); // nearly always: no need to hash
        }
        let waiters = self.waiters.remove(key).unwrap_or_default();
        waiters.into_iter().filter(|(_, client)| self.is_last(*client, key)).map(|(_, client)| client).collect()
    }

    /// A key is there for one client: the first whose wait that ends. It counts for those before it, who wait for more.
    pub fn appeared_for_one(&mut self, key: &[u8]) -> Option<ClientId> {
        while let Some(&(turn, client)) = self.waiters.get(key).and_then(BTreeSet::first) {
            self.forget(key, (turn, client));
            if self.is_last(client, key) {
                return Some(client);
            }
        }
        None
    }

    /// Whether nothing at all is remembered.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.waiters.is_empty()
    }

    fn forget(&mut self, key: &[u8], waiter: (Turn, ClientId)) {
        let Some(waiters) = self.waiters.get_mut(key) else { return };
        waiters.remove(&waiter);
        if waiters.is_empty() {
            self.waiters.remove(key);
        }
    }

    /// Takes the key off what the client waits for; whether its wait is over by that.
    fn is_last(&mut self, client: ClientId, key: &[u8]) -> bool {
        let Some(wait) = self.missing.get_mut(&client) else { return false };
        wait.keys.remove(key);
        let is_over = wait.keys.is_empty();
        if is_over {
            self.missing.remove(&client);
        }
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);

    #[test]
    fn a_wait_ends_with_its_last_key() {
        let mut waits = Waits::default();
        waits.begin(A, [&b"x"[..], b"y", b"x"]);
        assert_eq!(waits.appeared(b"x"), []);
        assert_eq!(waits.appeared(b"x"), []);
        assert_eq!(waits.appeared(b"y"), [A]);
        assert!(!waits.has(A));
    }

    #[test]
    fn waiters_are_woken_in_the_order_in_which_they_came() {
        let mut waits = Waits::default();
        waits.begin(B, [&b"x"[..]]);
        waits.begin(A, [&b"x"[..]]);
        assert_eq!(waits.appeared(b"x"), [B, A]);
    }

    #[test]
    fn one_push_wakes_one_and_passes_over_those_who_wait_for_more() {
        let mut waits = Waits::default();
        waits.begin(A, [&b"q"[..], b"x"]);
        waits.begin(B, [&b"q"[..]]);
        assert_eq!(waits.appeared_for_one(b"q"), Some(B));
        assert_eq!(waits.appeared_for_one(b"q"), None);
        assert_eq!(waits.appeared(b"x"), [A]);
    }

    #[test]
    fn nothing_is_left_of_a_cancelled_wait() {
        let mut waits = Waits::default();
        waits.begin(A, [&b"x"[..], b"y"]);
        waits.cancel(A);
        assert_eq!(waits.appeared(b"x"), []);
        assert!(waits.is_empty());
    }
}
