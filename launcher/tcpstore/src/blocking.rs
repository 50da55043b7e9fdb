//! The client of a program without a runtime: a [`StoreClient`] that each request drives to its
//! end, which comes by a deadline.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::addr::StoreAddr;
use crate::ask::Ask;
use crate::client::StoreClient;
use crate::error::StoreError;
use crate::reply::StoreReply;
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
