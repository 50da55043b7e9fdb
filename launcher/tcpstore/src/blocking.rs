//! What a program without a runtime has: a [`StoreClient`] that each request drives to its end,
//! which comes by a deadline, and a store that is hosted on a thread of its own.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::client::StoreClient;
use crate::connect::StoreAddr;
use crate::error::StoreError;
use crate::reply::StoreReply;
use crate::server::StoreServer;
use crate::store::Ask;
use crate::wire::StoreRequest;

/// A connection to a server. Requests of several threads are made one after the other.
#[derive(Debug)]
pub struct BlockingClient {
    addr: StoreAddr,
    client: Mutex<StoreClient>,
    runtime: Driver,
}

/// A runtime that does not wait for a name lookup that hangs when it is dropped.
#[derive(Debug)]
struct Driver(Option<Runtime>);

impl BlockingClient {
    /// Connects to the server at `addr`, retrying until one answers or `timeout` has passed.
    pub fn connect(addr: &StoreAddr, timeout: Duration) -> Result<Self, StoreError> {
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

/// A store that is served until this is dropped.
#[derive(Debug)]
pub struct HostedStore {
    /// The port that was bound.
    pub port: u16,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HostedStore {
    /// Hosts an empty store at `addr`; port 0 is any free one.
    pub fn start(addr: &StoreAddr) -> Result<Self, StoreError> {
        let server = StoreServer::bind(&addr.host, Some(addr.port))?;
        let no_thread =
            |err: io::Error| StoreError::Other(format!("cannot host the store at {addr}: {err}"));
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(no_thread)?;
        let (port, (end, ended)) = (server.port(), oneshot::channel::<()>());
        let serve = async {
            let _served = server.spawn();
            // Whatever comes: the sender is gone, too, if it was dropped.
            let _ = ended.await;
        };
        let work = move || {
            runtime.block_on(serve);
            runtime.shutdown_timeout(Duration::ZERO);
        };
        let named = thread::Builder::new().name("rrun-store".to_owned());
        let thread = named.spawn(work).map_err(no_thread)?;
        Ok(Self {
            port,
            end: Some(end),
            thread: Some(thread),
        })
    }
}

impl Drop for HostedStore {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It has ended in one way or the other.
            let _ = thread.join();
        }
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
mod tests {
    use super::*;

    #[test]
    fn an_endless_wait_does_not_overflow() {
        assert!(
            Deadline::after(Duration::MAX).plus(Duration::MAX).left() > Duration::from_secs(3600)
        );
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
