//! A store in memory: it counts what is asked of it, and waits for nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tcpstore::table::{Answer, StoreTable};
use tcpstore::wire::StoreRequest;
use tcpstore::{Ask, Store, StoreError, StoreReply};

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
        table.budget().held()
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
        let reply = match table.answer(request) {
            Ok(Answer::None) => return Ok(None),
            Ok(Answer::Reply(reply)) => reply,
            Ok(Answer::Wait(_)) => StoreReply::WaitCanceled,
            Err(refusal) => return Err(StoreError::Other(refusal.to_string())),
        };
        let mut out = Vec::new();
        reply.encode(&mut out);
        self.count(out.len());
        self.replies.fetch_add(1, Ordering::Relaxed);
        Ok(Some(reply))
    }

    fn addr(&self) -> String {
        "memory".to_owned()
    }
}
