//! The table and the way to each of its clients.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::store::outbox::Outbox;
use crate::store::table::{Action, ClientId, Refusal, Table};
use crate::store::wire::Request;

/// Shared by all connections of one store. All of them run on one thread, so that the lock is never waited for.
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    table: Table,
    peers: HashMap<ClientId, Peer>,
    next: u64,
}

/// What waits for a connection to fetch it. A client has at most one wait, so others can put little more here than one
/// byte for it.
#[derive(Debug, Default)]
struct Peer {
    outbox: Outbox,
    ready: Arc<Notify>,
}

/// The place of one connection; dropping it ends the client's waits.
#[derive(Debug)]
pub struct Seat {
    hub: Hub,
    client: ClientId,
    ready: Arc<Notify>,
}

impl Hub {
    /// A place for a new client.
    pub fn enter(&self) -> Seat {
        let mut inner = self.lock();
        let client = ClientId(inner.next);
        inner.next += 1;
        let peer = Peer::default();
        let ready = Arc::clone(&peer.ready);
        inner.peers.insert(client, peer);
        Seat { hub: self.clone(), client, ready }
    }

    /// Stores a value without a connection.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let seat = self.enter();
        seat.on(&Request::Set { key, value }, &mut Outbox::default())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Answers a request; what is to be sent to this client, for this and earlier ones, goes to the end of `out`.
    pub fn on(&self, request: &Request<'_>, out: &mut Outbox) -> Result<(), Refusal> {
        let mut inner = self.hub.lock();
        let actions = inner.table.on(self.client, request);
        let refused = inner.deliver(self.client, actions);
        inner.collect(self.client, out);
        refused.map_or(Ok(()), Err)
    }

    /// Moves what others caused to be sent to this client to the end of `out`.
    pub fn collect(&self, out: &mut Outbox) {
        self.hub.lock().collect(self.client, out);
    }

    /// Ends when there may be something to collect.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        inner.peers.remove(&self.client);
        let actions = inner.table.leave(self.client);
        inner.deliver(self.client, actions);
    }
}

impl Inner {
    /// Puts replies where their clients fetch them; `from` looks there without being told.
    fn deliver(&mut self, from: ClientId, actions: Vec<Action>) -> Option<Refusal> {
        let mut refused = None;
        for action in actions {
            match action {
                Action::Send(to, reply) => {
                    let Some(peer) = self.peers.get_mut(&to) else { continue };
                    reply.encode(&mut peer.outbox);
                    if to != from {
                        peer.ready.notify_one();
                    }
                }
                Action::Close(_, refusal) => refused = Some(refusal),
            }
        }
        refused
    }

    fn collect(&mut self, client: ClientId, out: &mut Outbox) {
        if let Some(peer) = self.peers.get_mut(&client) {
            out.append(&mut peer.outbox);
        }
    }
}
