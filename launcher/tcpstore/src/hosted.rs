//! A store that a program without a runtime hosts, on a thread of its own.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::addr::StoreAddr;
use crate::error::StoreError;
use crate::server::StoreServer;

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
