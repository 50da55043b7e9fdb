//! A store in memory, for tests: it counts what is asked of it, and waits for nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::ask::Ask;
use crate::error::StoreError;
use crate::outbox::Outbox;
use crate::reply::StoreReply;
use crate::store::Store;
use crate::table::{StoreTable, TableAction};
use crate::waits::StoreClientId;
use crate::wire::StoreRequest;

const CLIENT: StoreClientId = StoreClientId(0);

/// A store in memory that counts requests and their bytes.
#[derive(Debug, Default)]
pub struct MemoryStore {
    table: Mutex<StoreTable>,
    requests: AtomicU64,
    replies: AtomicU64,
    bytes: AtomicU64,
}

impl MemoryStore {
    /// Returns an empty store, and what counts its requests.
    pub fn new() -> (Store, Arc<MemoryStore>) {
        let memory = Arc::new(MemoryStore::default());
        (Store::over(Arc::<MemoryStore>::clone(&memory)), memory)
    }

    /// Returns the number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the number of requests so far that have a reply, which a client waits for.
    pub fn replies(&self) -> u64 {
        self.replies.load(Ordering::Relaxed)
    }

    /// Returns the bytes so far, in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory of all keys and values, in bytes.
    pub fn held(&self) -> usize {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.held()
    }

    fn count(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Ask for MemoryStore {
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        _wait: Duration,
        _answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError> {
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        self.count(bytes.len());
        self.requests.fetch_add(1, Ordering::Relaxed);
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let mut actions = table.on(CLIENT, request);
        if actions.is_empty() && matches!(request, StoreRequest::Wait { .. }) {
            actions = table.on(CLIENT, &StoreRequest::CancelWait);
        }
        match actions.pop() {
            Some(TableAction::Send(_, reply)) => {
                let mut out = Outbox::default();
                reply.encode(&mut out);
                self.count(out.len());
                self.replies.fetch_add(1, Ordering::Relaxed);
                Ok(Some(reply))
            }
            Some(TableAction::Close(_, refusal)) => Err(StoreError::Other(refusal.to_string())),
            None => Ok(None),
        }
    }

    fn addr(&self) -> String {
        "memory".to_owned()
    }
}
