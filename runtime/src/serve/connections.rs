//! Decides which connections stay open. A state machine without sockets or clocks.
//!
//! There is a limit on the number of connections, and on the memory for messages that are being
//! received or wait for their answer. When a connection arrives at the limit, another one is
//! closed: the longest silent of those that never sent a readable request, or else the longest
//! silent of those that are not waiting for an answer. When the memory is used up, the connection
//! that holds the most of it is closed. Connections that have not sent the token share a quarter of
//! the memory. So thousands of silent connections, or announcements of huge messages, do not affect
//! other clients.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;

/// Connections without the token share one part in this many of the memory.
const UNAUTHENTICATED_SHARE: usize = 4;

/// Identifies a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// The connections and their state.
#[derive(Debug, Default)]
pub struct Connections {
    most: usize,
    memory_bytes: usize,
    /// Bytes held by all connections, and by those without the token.
    held_bytes: [usize; 2],
    taken: BTreeMap<ConnectionId, ConnectionState>,
    next: u64,
}

#[derive(Debug)]
struct ConnectionState {
    /// Time of its last message.
    heard: Instant,
    /// True after the connection sent a readable request.
    is_known: bool,
    /// True if the connection has sent the token, or none is needed.
    is_authenticated: bool,
    /// True while the connection waits for an answer.
    is_waiting: bool,
    /// Bytes of its messages that are being received or wait for their answer.
    message_bytes: usize,
    /// Bytes of earlier messages that are kept for it.
    kept_bytes: usize,
    /// Dropped once the connection has to be closed.
    _stays: oneshot::Sender<()>,
}

impl ConnectionState {
    fn held_bytes(&self) -> usize {
        self.message_bytes + self.kept_bytes
    }
}

/// A new connection, and the one that is closed for it.
#[derive(Debug)]
pub struct Admitted {
    /// Identifies the new connection.
    pub client: ConnectionId,
    /// The connection that has to be closed for it.
    pub evicted: Option<ConnectionId>,
    /// Ends when the new connection has to be closed.
    pub until: oneshot::Receiver<()>,
}

impl Connections {
    /// Allows `most` connections, and `memory_bytes` for all messages that are being received or
    /// wait for their answer.
    pub fn new(most: usize, memory_bytes: usize) -> Self {
        Self {
            most,
            memory_bytes,
            ..Self::default()
        }
    }

    /// Returns the number of connections.
    pub fn count(&self) -> usize {
        self.taken.len()
    }

    /// Returns the number of connections that wait for an answer.
    pub fn waiting(&self) -> usize {
        let connections = self.taken.values();
        connections
            .filter(|connection| connection.is_waiting)
            .count()
    }

    /// Admits a connection, which still has to send the token if `needs_token`. Returns `None` if
    /// the table is full and all connections wait for answers.
    pub fn admit(&mut self, needs_token: bool, now: Instant) -> Option<Admitted> {
        let mut evicted = None;
        if self.taken.len() >= self.most {
            let idle = self.taken.iter().filter(|(_, state)| !state.is_waiting);
            let longest = idle.min_by_key(|(_, state)| (state.is_known, state.heard))?;
            evicted = Some(*longest.0);
        }
        evicted.iter().for_each(|client| self.leave(*client));
        let client = ConnectionId(self.next);
        self.next += 1;
        let (stays, until) = oneshot::channel();
        let connection = ConnectionState {
            _stays: stays,
            heard: now,
            is_known: false,
            is_authenticated: !needs_token,
            is_waiting: false,
            message_bytes: 0,
            kept_bytes: 0,
        };
        self.taken.insert(client, connection);
        Some(Admitted {
            client,
            evicted,
            until,
        })
    }

    /// Records that the messages of a connection now use `bytes` bytes. Returns the connection to
    /// close if that exceeds the limit.
    pub fn hold(&mut self, client: ConnectionId, bytes: usize) -> Option<ConnectionId> {
        self.change(client, |connection| connection.message_bytes = bytes);
        let [all, unauthenticated] = self.held_bytes;
        let strangers_hold_too_much = unauthenticated > self.memory_bytes / UNAUTHENTICATED_SHARE;
        if all <= self.memory_bytes && !strangers_hold_too_much {
            return None;
        }
        let may_go = |state: &ConnectionState| !strangers_hold_too_much || !state.is_authenticated;
        let may_go = self.taken.iter().filter(|(_, state)| may_go(state));
        let greediest = *may_go.max_by_key(|(_, state)| state.held_bytes())?.0;
        self.leave(greediest);
        Some(greediest)
    }

    fn change(&mut self, client: ConnectionId, change: impl FnOnce(&mut ConnectionState)) {
        let Some(connection) = self.taken.get_mut(&client) else {
            return;
        };
        let before = connection.held_bytes();
        change(connection);
        let after = connection.held_bytes();
        let [all, unauthenticated] = &mut self.held_bytes;
        *all = *all - before + after;
        if !connection.is_authenticated {
            *unauthenticated = *unauthenticated - before + after;
        }
    }

    /// Records that `bytes` bytes of answered messages are kept for a connection.
    pub fn keep(&mut self, client: ConnectionId, bytes: usize) {
        self.change(client, |connection| connection.kept_bytes = bytes);
    }

    /// Returns whether a connection has sent the token, or none is needed.
    pub fn is_authenticated(&self, client: ConnectionId) -> bool {
        let connection = self.taken.get(&client);
        connection.is_some_and(|connection| connection.is_authenticated)
    }

    /// Records that a connection has sent a whole message and waits for the answer.
    pub fn asked(&mut self, client: ConnectionId, now: Instant) {
        self.change(client, |state| {
            (state.heard, state.is_waiting) = (now, true)
        });
    }

    /// Records that a connection has sent the token.
    pub fn authenticated(&mut self, client: ConnectionId) {
        if let Some(state) = self.taken.get_mut(&client)
            && !std::mem::replace(&mut state.is_authenticated, true)
        {
            self.held_bytes[1] -= state.held_bytes();
        }
    }

    /// Records that a connection has sent a readable request.
    pub fn known(&mut self, client: ConnectionId) {
        self.change(client, |state| state.is_known = true);
    }

    /// Records that a connection has its answer.
    pub fn answered(&mut self, client: ConnectionId, now: Instant) {
        self.change(client, |state| {
            (state.message_bytes, state.is_waiting, state.heard) = (0, false, now);
        });
    }

    /// Removes a connection that is closed.
    pub fn leave(&mut self, client: ConnectionId) {
        self.change(client, |state| {
            (state.message_bytes, state.kept_bytes) = (0, 0)
        });
        self.taken.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::now;

    fn full(count: u64, now: Instant) -> Connections {
        let mut connections = Connections::new(count as usize, 100);
        for number in 0..count {
            let admitted = connections.admit(false, now + Duration::from_secs(number));
            assert_eq!(admitted.unwrap().client, ConnectionId(number));
        }
        connections
    }

    /// Returns who has to leave for a stranger that comes later.
    fn evicted(connections: &mut Connections, now: Instant) -> Option<ConnectionId> {
        let admitted = connections.admit(false, now + Duration::from_secs(9));
        admitted.unwrap().evicted
    }

    #[test]
    fn strangers_go_before_clients_and_the_longest_silent_first() {
        let now = now();
        let mut connections = full(3, now);
        connections.asked(ConnectionId(0), now);
        connections.known(ConnectionId(0));
        connections.answered(ConnectionId(0), now);
        assert_eq!(evicted(&mut connections, now), Some(ConnectionId(1)));
        assert_eq!(evicted(&mut connections, now), Some(ConnectionId(2)));
    }

    #[test]
    fn who_waits_for_an_answer_stays() {
        let now = now();
        let mut connections = full(2, now);
        connections.asked(ConnectionId(0), now);
        connections.asked(ConnectionId(1), now);
        assert!(connections.admit(false, now).is_none());
        connections.answered(ConnectionId(1), now);
        assert_eq!(evicted(&mut connections, now), Some(ConnectionId(1)));
        assert_eq!(connections.count(), 2);
    }

    #[test]
    fn who_asks_without_the_token_is_no_client() {
        let now = now();
        let mut connections = full(2, now);
        connections.known(ConnectionId(0));
        for _ in 0..9 {
            connections.asked(ConnectionId(1), now + Duration::from_secs(5));
            connections.answered(ConnectionId(1), now + Duration::from_secs(5));
        }
        assert_eq!(evicted(&mut connections, now), Some(ConnectionId(1)));
    }

    #[test]
    fn a_message_counts_until_it_is_answered() {
        let now = now();
        let mut connections = full(2, now);
        assert_eq!(connections.hold(ConnectionId(0), 60), None);
        connections.asked(ConnectionId(0), now);
        assert_eq!(connections.hold(ConnectionId(1), 50), Some(ConnectionId(0)));
        assert_eq!(connections.hold(ConnectionId(1), 100), None);
        connections.answered(ConnectionId(1), now);
        assert_eq!(connections.held_bytes, [0, 0]);
    }

    #[test]
    fn connections_without_the_token_share_a_quarter_and_cost_no_client_its_message() {
        let now = now();
        let mut connections = Connections::new(9, 100);
        let admit = |connections: &mut Connections| connections.admit(true, now).unwrap().client;
        let [client, first, second] = [(); 3].map(|()| admit(&mut connections));
        connections.hold(client, 5);
        connections.authenticated(client);
        assert_eq!(connections.hold(client, 70), None);
        assert_eq!(connections.hold(first, 20), None);
        assert_eq!(connections.hold(second, 6), Some(first));
        assert_eq!(connections.held_bytes, [76, 6]);
        connections.leave(client);
        assert_eq!(connections.held_bytes, [6, 6]);
    }

    #[test]
    fn the_greediest_goes_when_the_memory_is_used_up() {
        let mut connections = full(3, now());
        assert_eq!(connections.hold(ConnectionId(0), 30), None);
        assert_eq!(connections.hold(ConnectionId(1), 60), None);
        assert_eq!(connections.hold(ConnectionId(2), 20), Some(ConnectionId(1)));
        assert_eq!(connections.hold(ConnectionId(2), 40), None);
    }
}
