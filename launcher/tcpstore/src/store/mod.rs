//! The client of ranks: blocking, with a deadline for every request. Programs without a runtime
//! have a [`StoreClient`] that each request drives to its end, and host a store on a thread of its
//! own.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::client::StoreClient;
use crate::connect::StoreAddr;
use crate::error::StoreError;
use crate::reply::StoreReply;
use crate::server::StoreServer;
use crate::wire::{StoreRequest, wire_keys};

/// Time limit for an answer: a busy machine may delay the process that serves the store.
const ANSWER: Duration = Duration::from_secs(60);

/// Keys in one request of [`Store::multi_get`].
const AT_ONCE: usize = 1024;

/// Whoever answers requests: a server at the other end of a connection, or a table in memory.
pub trait Ask: Send + Sync {
    /// Makes a request and returns its reply, `None` if it has none. A `WAIT` is cancelled after
    /// `wait`, and answered with [`StoreReply::WaitCanceled`]; any other reply may take `answer`.
    ///
    /// # Errors
    /// Returns an error if there is no reply in time. The connection is of no use from then on, and
    /// further requests fail at once.
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError>;

    /// Returns the address, for messages.
    fn addr(&self) -> String;
}

/// The part of a store with a prefix, which torch's `PrefixStore` with the same prefixes sees, too.
/// Clones and parts share a connection: a request that waits for a key blocks the others, so a
/// thread that waits for a long time should open a connection of its own.
#[derive(Clone)]
pub struct Store {
    asked: Arc<dyn Ask>,
    /// The server, if it is in this process.
    hosted: Option<Arc<HostedStore>>,
    /// Before every key, with its slash.
    prefix: String,
    /// Time limit for an answer, in addition to the time that a request waits for a key.
    limit: Duration,
}

impl Store {
    /// Connects to the store at `addr`, and retries until `timeout`. In a world of `world` ranks,
    /// it is counted as one of them, as by torch's clients; 0 is for a further connection.
    ///
    /// With `serve`, this process hosts the store, which ends with it. This is for rank 0 under a
    /// torchrun whose agent hosts no store (`TORCHELASTIC_USE_AGENT_STORE` is not `True`). It does
    /// not wait for the other ranks.
    ///
    /// # Errors
    /// Returns an error if no store answers in time, or none can be hosted.
    pub fn connect(
        addr: &StoreAddr,
        world: usize,
        serve: bool,
        timeout: Duration,
    ) -> Result<Self, StoreError> {
        let hosted = serve.then(|| HostedStore::start(addr)).transpose()?;
        let addr = StoreAddr {
            port: hosted.as_ref().map_or(addr.port, |hosted| hosted.port),
            ..addr.clone()
        };
        let store = Self {
            hosted: hosted.map(Arc::new),
            ..Self::over(Arc::new(BlockingClient::connect(&addr, timeout)?))
        };
        if world > 0 && !serve {
            // A server in Python may wait until so many have come.
            let (key, delta) = (StoreRequest::COUNT, 1);
            store.number(&StoreRequest::Add { key, delta })?;
        }
        Ok(store)
    }

    /// Returns the store of whoever answers.
    pub fn over(asked: Arc<dyn Ask>) -> Self {
        Self {
            asked,
            hosted: None,
            prefix: String::new(),
            limit: ANSWER,
        }
    }

    /// Returns the same store with another time limit for an answer.
    pub fn answering_within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Returns the port of the store that this process hosts, or 0.
    pub fn port(&self) -> u16 {
        self.hosted.as_ref().map_or(0, |hosted| hosted.port)
    }

    /// Returns the same store with `prefix` and a slash before every key.
    pub fn prefix(&self, prefix: &str) -> Self {
        Self {
            prefix: format!("{}{prefix}/", self.prefix),
            ..self.clone()
        }
    }

    /// Writes `value`, at most 8 MiB (the limit of the server), replacing the previous value.
    ///
    /// The server does not acknowledge it; a later request that reads shows whether it arrived.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &self.wire(key);
        self.ask(&StoreRequest::Set { key, value }).map(drop)
    }

    /// Appends `value` to the value of `key`, which is empty if it is missing. As [`Store::set`],
    /// it is not acknowledged.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn append(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        let key = &self.wire(key);
        self.ask(&StoreRequest::Append { key, value }).map(drop)
    }

    /// Returns the value of `key`, waiting for it at most `wait`.
    ///
    /// # Errors
    /// Returns [`StoreError::Missing`] if it does not come, or an error if the store is lost.
    pub fn get(&self, key: &str, wait: Duration) -> Result<Vec<u8>, StoreError> {
        self.wait(key, wait)?;
        let key = &self.wire(key);
        let reply = self.ask(&StoreRequest::Get { key })?;
        self.expected(reply.and_then(StoreReply::into_value))
    }

    /// Replaces the value of `key` by `desired` if it is `expected`; an empty `expected` also
    /// matches a missing key. Returns the resulting value of `key`, or `expected` if it has none.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn compare_set(
        &self,
        key: &str,
        expected: &[u8],
        desired: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let key = &self.wire(key);
        let reply = self.ask(&StoreRequest::CompareSet {
            key,
            expected,
            desired,
        })?;
        self.expected(reply.and_then(StoreReply::into_value))
    }

    /// Adds `delta` to a number, which is zero if it is missing, and returns the sum.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn add(&self, key: &str, delta: i64) -> Result<i64, StoreError> {
        let key = &self.wire(key);
        self.number(&StoreRequest::Add { key, delta })
    }

    /// Returns whether `key` has a value now.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn check(&self, key: &str) -> Result<bool, StoreError> {
        self.check_all(&[key])
    }

    /// Returns whether all of these keys have a value now.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn check_all<S: AsRef<str>>(&self, keys: &[S]) -> Result<bool, StoreError> {
        let keys = self.wire_all(keys);
        let keys = keys.iter().map(Vec::as_slice).collect();
        let reply = self.ask(&StoreRequest::Check { keys })?;
        Ok(reply == Some(StoreReply::Exist(true)))
    }

    /// Returns the values that these keys have now, in their order, empty where a key has none. It
    /// needs a request for each 1 024 keys.
    ///
    /// # Errors
    /// Returns an error if the store is lost. Torch's server without libuv, which is not its
    /// default, closes the connection if a key has no value.
    pub fn multi_get<S: AsRef<str>>(&self, keys: &[S]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut values = Vec::with_capacity(keys.len());
        for part in keys.chunks(AT_ONCE) {
            let keys = self.wire_all(part);
            let keys = keys.iter().map(Vec::as_slice).collect();
            let reply = self.ask(&StoreRequest::MultiGet { keys })?;
            values.extend(self.expected(reply.and_then(StoreReply::into_values))?);
        }
        Ok(values)
    }

    /// Waits at most `wait` until `key` has a value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn wait(&self, key: &str, wait: Duration) -> Result<(), StoreError> {
        self.wait_all(&[key], wait)
    }

    /// Waits at most `wait` until all of these keys have a value.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn wait_all<S: AsRef<str>>(&self, keys: &[S], wait: Duration) -> Result<(), StoreError> {
        let wire = self.wire_all(keys);
        let request = StoreRequest::Wait {
            keys: wire.iter().map(Vec::as_slice).collect(),
        };
        match self.asked.ask(&request, wait, self.limit)? {
            Some(StoreReply::StopWaiting) => Ok(()),
            _ => Err(StoreError::missing(&self.asked.addr(), keys, wait)),
        }
    }

    /// Removes `key`; returns whether it existed.
    ///
    /// # Errors
    /// Returns an error if the store is lost.
    pub fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let key = &self.wire(key);
        Ok(self.number(&StoreRequest::Delete { key })? == 1)
    }

    fn wire(&self, key: &str) -> Vec<u8> {
        wire_keys(&[key], &self.prefix).remove(0)
    }

    fn wire_all<S: AsRef<str>>(&self, keys: &[S]) -> Vec<Vec<u8>> {
        wire_keys(keys, &self.prefix)
    }

    /// Makes a request that waits for no key.
    fn ask(&self, request: &StoreRequest<'_>) -> Result<Option<StoreReply>, StoreError> {
        self.asked.ask(request, Duration::ZERO, self.limit)
    }

    fn number(&self, request: &StoreRequest<'_>) -> Result<i64, StoreError> {
        let reply = self.ask(request)?;
        self.expected(reply.and_then(StoreReply::into_number))
    }

    /// Returns what a reply must contain.
    fn expected<T>(&self, found: Option<T>) -> Result<T, StoreError> {
        found.ok_or_else(|| StoreError::Lost {
            addr: self.asked.addr(),
            err: io::ErrorKind::InvalidData.into(),
        })
    }
}

/// A connection to a server. Requests of several threads are made one after the other.
#[derive(Debug)]
struct BlockingClient {
    addr: StoreAddr,
    client: Mutex<StoreClient>,
    runtime: Driver,
}

/// A runtime that does not wait for a name lookup that hangs when it is dropped.
#[derive(Debug)]
struct Driver(Option<Runtime>);

impl BlockingClient {
    /// Connects to the server at `addr`, retrying until one answers or `timeout` has passed.
    fn connect(addr: &StoreAddr, timeout: Duration) -> Result<Self, StoreError> {
        let no_runtime =
            |err: io::Error| StoreError::Other(format!("no client of the store at {addr}: {err}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = Driver(Some(runtime.map_err(no_runtime)?));
        let connect = StoreClient::connect(&addr.host, addr.port, timeout);
        let client = Mutex::new(runtime.drive(connect)?);
        let addr = addr.clone();
        Ok(Self {
            addr,
            client,
            runtime,
        })
    }
}

impl Ask for BlockingClient {
    fn ask(
        &self,
        request: &StoreRequest<'_>,
        wait: Duration,
        answer: Duration,
    ) -> Result<Option<StoreReply>, StoreError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        self.runtime.drive(client.request(request, wait, answer))
    }

    fn addr(&self) -> String {
        self.addr.to_string()
    }
}

impl Driver {
    fn drive<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let runtime = self.0.as_ref().expect("it is taken when it is dropped");
        runtime.block_on(work)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// A store that a thread serves until a moment after this is dropped.
#[derive(Debug)]
struct HostedStore {
    /// The port that was bound.
    port: u16,
    _end: oneshot::Sender<()>,
}

impl HostedStore {
    /// Hosts an empty store at `addr`; port 0 is any free one.
    fn start(addr: &StoreAddr) -> Result<Self, StoreError> {
        let server = StoreServer::bind(&addr.host, Some(addr.port));
        let server = server.map_err(StoreError::with_owner)?;
        let no_thread =
            |err: io::Error| StoreError::Other(format!("cannot host the store at {addr}: {err}"));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(no_thread)?;
        let (port, (end, ended)) = (server.port(), oneshot::channel::<()>());
        let serve = async {
            let _served = server.spawn();
            // It ends when the sender is dropped.
            let _ = ended.await;
        };
        let named = thread::Builder::new().name("rrun-store".to_owned());
        let thread = named.spawn(move || runtime.block_on(serve));
        thread.map_err(no_thread)?;
        Ok(Self { port, _end: end })
    }
}

/// A year, in place of waits that the clock cannot represent.
pub(crate) const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The moment at which waiting ends.
#[derive(Clone, Copy, Debug)]
pub struct Deadline(Instant);

impl Deadline {
    /// Returns the moment `wait` from now.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait for peers ends by the clock"
    )]
    pub fn after(wait: Duration) -> Self {
        let now = Instant::now();
        Self(now.checked_add(wait).unwrap_or(now + FAR))
    }

    /// Returns the remaining time, zero after the deadline.
    #[expect(
        clippy::disallowed_methods,
        reason = "a wait for peers ends by the clock"
    )]
    pub fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Returns the deadline postponed by `wait`.
    pub fn plus(self, wait: Duration) -> Self {
        Self(self.0.checked_add(wait).unwrap_or(self.0))
    }
}

#[cfg(test)]
mod tests;
