//! The state that all connections of a store share: the table, the outbox of each client, and the
//! choice of connections to evict when resources run out.
//!
//! The store cannot tell a rank from another client, but ranks send requests as soon as they
//! connect. So when all connection slots are taken, clients without a request so far are evicted;
//! when memory for buffers runs out, clients that stopped in the middle of a request are. In both
//! cases those that have been silent for longest go first.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::store::limits::{FREE_BUFFER, StoreLimits};
use crate::store::outbox::Outbox;
use crate::store::table::{StoreRefusal, StoreTable, TableAction};
use crate::store::value::StoreValue;
use crate::store::waits::StoreClientId;
use crate::store::wire::StoreRequest;

/// The state shared by all connections of one store. They all run on one thread, so the lock is
/// never contended.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    table: StoreTable,
    peers: HashMap<StoreClientId, ClientRecord>,
    next: u64,
    limits: StoreLimits,
    /// Bytes that all connections buffer beyond [`FREE_BUFFER`] each.
    buffered: usize,
}

/// What a connection has to fetch: its replies and its eviction. A client has at most one wait, so
/// other clients can add little more than one byte for it here.
#[derive(Debug)]
struct ClientRecord {
    outbox: Outbox,
    ready: Arc<Notify>,
    /// Whether it has sent a request besides the handshake and `PING`.
    has_asked: bool,
    /// When it last sent or accepted bytes.
    heard_at: Instant,
    /// Bytes that it buffers beyond [`FREE_BUFFER`].
    buffered: usize,
    /// Whether it has to close.
    is_evicted: bool,
}

/// The handle of one connection; dropping it cancels the client's waits.
#[derive(Debug)]
pub struct StoreSession {
    hub: Hub,
    client: StoreClientId,
    ready: Arc<Notify>,
    /// Bytes that are counted as buffered.
    buffered: usize,
}

/// The connection has to close to make room for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Evicted;

impl Hub {
    /// Returns an empty store.
    pub fn new(limits: StoreLimits) -> Hub {
        let (peers, table) = (HashMap::new(), StoreTable::with_limit(limits.held));
        Hub(Arc::new(Mutex::new(Inner {
            table,
            peers,
            next: 0,
            limits,
            buffered: 0,
        })))
    }

    /// Registers a new client.
    pub fn enter(&self) -> StoreSession {
        let mut inner = self.lock();
        let client = StoreClientId(inner.next);
        inner.next += 1;
        let ready = Arc::new(Notify::new());
        let peer = ClientRecord {
            outbox: Outbox::default(),
            ready: Arc::clone(&ready),
            has_asked: false,
            heard_at: Instant::now(),
            buffered: 0,
            is_evicted: false,
        };
        inner.peers.insert(client, peer);
        StoreSession {
            hub: self.clone(),
            client,
            ready,
            buffered: 0,
        }
    }

    /// Stores a value without a connection.
    pub fn set(&self, key: &[u8], value: &[u8]) -> Result<(), StoreRefusal> {
        let session = self.enter();
        session.on(&StoreRequest::Set { key, value }, &mut Outbox::default())
    }

    /// Takes the first value of a queue without a connection.
    pub fn pop(&self, key: &[u8]) -> Option<StoreValue> {
        self.lock().table.take_first(key)
    }

    /// Evicts clients that have sent no request for a while, at most an eighth of all. Returns
    /// their number.
    pub fn evict_silent(&self) -> usize {
        let mut guard = self.lock();
        let inner = &mut *guard;
        let most = inner.peers.len() / 8 + 1;
        let silent = inner.idle(|peer| !peer.has_asked);
        silent
            .iter()
            .take(most)
            .filter(|client| inner.evict(**client))
            .count()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StoreSession {
    /// Answers a request. Appends to `out` everything that is due to this client, for this request
    /// and earlier ones.
    pub fn on(&self, request: &StoreRequest<'_>, out: &mut Outbox) -> Result<(), StoreRefusal> {
        let mut inner = self.hub.lock();
        let actions = inner.table.on(self.client, request);
        let refused = inner.deliver(self.client, actions);
        if let Some(peer) = inner.peers.get_mut(&self.client) {
            peer.has_asked |=
                !matches!(request, StoreRequest::Validate | StoreRequest::Ping { .. });
            out.append(&mut peer.outbox);
        }
        refused.map_or(Ok(()), Err)
    }

    /// Begins a wait for these keys; more will follow.
    pub fn begin_wait(&self, keys: &[&[u8]]) -> Result<(), StoreRefusal> {
        self.hub.lock().table.begin_wait(self.client, keys)
    }

    /// Returns whether all of these keys exist.
    pub fn has_all(&self, keys: &[&[u8]]) -> bool {
        self.hub.lock().table.has_all(keys)
    }

    /// Appends to `out` the replies that requests of other clients caused for this one.
    pub fn collect(&self, out: &mut Outbox) -> Result<(), Evicted> {
        match self.hub.lock().peers.get_mut(&self.client) {
            Some(peer) if peer.is_evicted => return Err(Evicted),
            Some(peer) => out.append(&mut peer.outbox),
            None => {}
        }
        Ok(())
    }

    /// Records that the client has sent or accepted bytes.
    pub fn heard(&self) {
        if let Some(peer) = self.hub.lock().peers.get_mut(&self.client) {
            peer.heard_at = Instant::now();
        }
    }

    /// Sets the number of bytes that this connection buffers or is about to buffer. Other
    /// connections may be evicted for that.
    pub fn buffer(&mut self, bytes: usize) -> Result<(), StoreRefusal> {
        let bytes = bytes.saturating_sub(FREE_BUFFER);
        if bytes != self.buffered {
            self.hub.lock().buffer(self.client, bytes)?;
            self.buffered = bytes;
        }
        Ok(())
    }

    /// Waits until there may be something to collect.
    pub async fn ready(&self) {
        self.ready.notified().await;
    }
}

impl Drop for StoreSession {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        inner.release(self.client);
        inner.peers.remove(&self.client);
        let actions = inner.table.leave(self.client);
        inner.deliver(self.client, actions);
    }
}

impl Inner {
    /// Puts replies into the outboxes of their clients and wakes them, except `from`, which looks
    /// there anyway.
    fn deliver(&mut self, from: StoreClientId, actions: Vec<TableAction>) -> Option<StoreRefusal> {
        let mut refused = None;
        for action in actions {
            match action {
                TableAction::Send(to, reply) => {
                    let Some(peer) = self.peers.get_mut(&to) else {
                        continue;
                    };
                    reply.encode(&mut peer.outbox);
                    if to != from {
                        peer.ready.notify_one();
                    }
                }
                TableAction::Close(_, refusal) => refused = Some(refusal),
            }
        }
        refused
    }

    fn buffer(&mut self, client: StoreClientId, bytes: usize) -> Result<(), StoreRefusal> {
        let before = self.peers.get(&client).map_or(0, |peer| peer.buffered);
        let mut refused = self.exchange(before, bytes);
        if refused.is_err() {
            for idle in self.idle(|peer| peer.buffered > 0) {
                if idle != client && self.evict(idle) {
                    refused = self.exchange(before, bytes);
                }
                if refused.is_ok() {
                    break;
                }
            }
        }
        refused?;
        if let Some(peer) = self.peers.get_mut(&client) {
            peer.buffered = bytes;
        }
        Ok(())
    }

    fn exchange(&mut self, before: usize, now: usize) -> Result<(), StoreRefusal> {
        let (held, most) = (self.buffered - before, self.limits.buffered);
        if now > before && now > most.saturating_sub(held) {
            return Err(StoreRefusal::Buffers {
                held: self.buffered,
                most,
            });
        }
        self.table.buffer(before, now)?;
        self.buffered = held + now;
        Ok(())
    }

    /// Returns the clients that have been silent for the grace period, the longest silent first.
    fn idle(&self, is_meant: impl Fn(&ClientRecord) -> bool) -> Vec<StoreClientId> {
        let now = Instant::now();
        let is_idle = |peer: &ClientRecord| now.duration_since(peer.heard_at) >= self.limits.grace;
        let idle = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.is_evicted && is_idle(peer) && is_meant(peer));
        let mut idle: Vec<_> = idle
            .map(|(client, peer)| (peer.heard_at, *client))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, client)| client).collect()
    }

    /// Evicts a client. Its buffers count as free from now on.
    fn evict(&mut self, client: StoreClientId) -> bool {
        self.release(client);
        let Some(peer) = self.peers.get_mut(&client) else {
            return false;
        };
        peer.is_evicted = true;
        peer.ready.notify_one();
        true
    }

    fn release(&mut self, client: StoreClientId) {
        let Some(peer) = self.peers.get_mut(&client) else {
            return;
        };
        let before = std::mem::take(&mut peer.buffered);
        self.buffered -= before;
        // Giving memory back is never refused.
        let _ = self.table.buffer(before, 0);
    }
}
