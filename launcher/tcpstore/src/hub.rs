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

use crate::error::StoreRefusal;
use crate::limits::{FREE_BUFFER, StoreLimits};
use crate::outbox::Outbox;
use crate::table::{StoreTable, TableAction};
use crate::value::StoreValue;
use crate::waits::StoreClientId;
use crate::wire::StoreRequest;

/// The state shared by all connections of one store. They all run on one thread, so the lock is
/// never contended.
#[derive(Clone, Debug)]
pub struct Hub(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    table: StoreTable,
    peers: HashMap<StoreClientId, Arc<ClientRecord>>,
    next: u64,
    limits: StoreLimits,
    /// Bytes that all connections buffer beyond [`FREE_BUFFER`] each.
    buffered: usize,
    /// An empty buffer for the next connection that reads.
    spare: Vec<u8>,
}

/// What the store knows of a client. Its connection reaches it without a search: with thousands of
/// clients, each search would be a cache miss.
#[derive(Debug)]
struct ClientRecord {
    ready: Notify,
    state: Mutex<ClientState>,
}

/// What a connection has to fetch: its replies and its eviction. A client has at most one wait, so
/// other clients can add little more than one byte for it here.
#[derive(Debug)]
struct ClientState {
    outbox: Outbox,
    /// Whether it has sent a request besides the handshake and `PING`.
    has_asked: bool,
    /// When it last sent or accepted bytes.
    heard_at: Instant,
    /// Bytes that it buffers beyond [`FREE_BUFFER`].
    buffered: usize,
    /// Whether it has to close.
    is_evicted: bool,
}

impl ClientRecord {
    /// Nobody locks the hub while holding this.
    fn lock(&self) -> MutexGuard<'_, ClientState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The handle of one connection; dropping it cancels the client's waits.
#[derive(Debug)]
pub struct StoreSession {
    hub: Hub,
    client: StoreClientId,
    record: Arc<ClientRecord>,
    /// Bytes that are counted as buffered.
    buffered: usize,
}

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
            spare: Vec::new(),
        })))
    }

    /// Registers a new client.
    pub fn enter(&self) -> StoreSession {
        let mut inner = self.lock();
        let client = StoreClientId(inner.next);
        inner.next += 1;
        let record = Arc::new(ClientRecord {
            ready: Notify::new(),
            state: Mutex::new(ClientState {
                outbox: Outbox::default(),
                has_asked: false,
                heard_at: Instant::now(),
                buffered: 0,
                is_evicted: false,
            }),
        });
        inner.peers.insert(client, Arc::clone(&record));
        StoreSession {
            hub: self.clone(),
            client,
            record,
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
        let mut state = self.record.lock();
        state.has_asked |= !matches!(request, StoreRequest::Validate | StoreRequest::Ping { .. });
        out.append(&mut state.outbox);
        drop(state);
        let refused = inner.deliver(actions, self.client, out);
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
    pub fn collect(&self, out: &mut Outbox) -> Result<(), StoreRefusal> {
        let mut state = self.record.lock();
        if state.is_evicted {
            let why = "it was silent, and other clients need its place";
            return Err(StoreRefusal::new(why));
        }
        out.append(&mut state.outbox);
        Ok(())
    }

    /// Records that the client has sent or accepted bytes.
    pub fn heard(&self) {
        self.record.lock().heard_at = Instant::now();
    }

    /// Returns an empty buffer to read into. Connections share one as long as each answers what it
    /// has read before another reads: it stays in the cache, and idle clients need none.
    pub fn spare(&self) -> Vec<u8> {
        std::mem::take(&mut self.hub.lock().spare)
    }

    /// Gives back an empty buffer.
    pub fn give_back(&self, buffer: Vec<u8>) {
        if (1..=FREE_BUFFER).contains(&buffer.capacity()) {
            self.hub.lock().spare = buffer;
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
        self.record.ready.notified().await;
    }
}

impl Drop for StoreSession {
    fn drop(&mut self) {
        let mut inner = self.hub.lock();
        inner.release(self.client);
        inner.peers.remove(&self.client);
        let actions = inner.table.leave(self.client);
        inner.deliver(actions, self.client, &mut Outbox::default());
    }
}

impl Inner {
    /// Puts the replies to `from` into `out`, those to other clients into their outboxes, and wakes
    /// these.
    fn deliver(
        &self,
        actions: Vec<TableAction>,
        from: StoreClientId,
        out: &mut Outbox,
    ) -> Option<StoreRefusal> {
        let mut refused = None;
        for action in actions {
            match action {
                TableAction::Send(to, reply) if to == from => reply.encode(out),
                TableAction::Send(to, reply) => {
                    if let Some(peer) = self.peers.get(&to) {
                        reply.encode(&mut peer.lock().outbox);
                        peer.ready.notify_one();
                    }
                }
                TableAction::Close(_, refusal) => refused = Some(refusal),
            }
        }
        refused
    }

    fn buffer(&mut self, client: StoreClientId, bytes: usize) -> Result<(), StoreRefusal> {
        let before = self
            .peers
            .get(&client)
            .map_or(0, |peer| peer.lock().buffered);
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
        if let Some(peer) = self.peers.get(&client) {
            peer.lock().buffered = bytes;
        }
        Ok(())
    }

    fn exchange(&mut self, before: usize, now: usize) -> Result<(), StoreRefusal> {
        let (held, most) = (self.buffered - before, self.limits.buffered);
        if now > before && now > most.saturating_sub(held) {
            return Err(StoreRefusal::new(format!(
                "requests and replies under way take {} of at most {most} bytes, and there is no \
                 room for more",
                self.buffered
            )));
        }
        self.table.buffer(before, now)?;
        self.buffered = held + now;
        Ok(())
    }

    /// Returns the clients that have been silent for the grace period, the longest silent first.
    fn idle(&self, is_meant: impl Fn(&ClientState) -> bool) -> Vec<StoreClientId> {
        let now = Instant::now();
        let is_idle = |peer: &ClientState| now.duration_since(peer.heard_at) >= self.limits.grace;
        let idle = self.peers.iter().filter_map(|(client, peer)| {
            let peer = peer.lock();
            let is_one = !peer.is_evicted && is_idle(&peer) && is_meant(&peer);
            is_one.then(|| (peer.heard_at, *client))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, client)| client).collect()
    }

    /// Evicts a client. Its buffers count as free from now on.
    fn evict(&mut self, client: StoreClientId) -> bool {
        self.release(client);
        let Some(peer) = self.peers.get(&client) else {
            return false;
        };
        peer.lock().is_evicted = true;
        peer.ready.notify_one();
        true
    }

    fn release(&mut self, client: StoreClientId) {
        let Some(peer) = self.peers.get(&client) else {
            return;
        };
        let before = std::mem::take(&mut peer.lock().buffered);
        self.buffered -= before;
        // Giving memory back is never refused.
        let _ = self.table.buffer(before, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_one_buffer_unless_it_is_large() {
        let hub = Hub::new(StoreLimits::default());
        let (one, other) = (hub.enter(), hub.enter());
        one.give_back(Vec::with_capacity(FREE_BUFFER));
        one.give_back(Vec::new());
        one.give_back(Vec::with_capacity(FREE_BUFFER + 1));
        let taken = other.spare().capacity();
        assert_eq!((taken, one.spare().capacity()), (FREE_BUFFER, 0));
    }
}
