//! The page of a run while it lasts (`rrun eval --page-port`).
//!
//! ```text
//! browser ──► server ─► access (pure): token, host name     connections have limits and deadlines
//!               │    └► route (pure): what is asked for
//!               ├─ events ◄── board (pure): newest fragments, numbered ◄── updater ◄── journals
//!               ├─ files: films that a journal names, pictures, hang reports
//!               └─ commands ──► live/commands.json ──► ranks
//! ```
//! The page has a thread of its own with a low priority, so that it never delays the agent or a
//! rank. Journals are read only while somebody looks. A browser that is slow gets the newest state
//! when it can take it, and none of those between: nothing is queued for it. One that takes nothing
//! is disconnected.

mod access;
mod answer;
mod board;
mod commands;
mod error;
mod events;
mod files;
mod forms;
mod reply;
mod request;
mod route;
mod send;
mod server;
mod shared;
mod stall;
#[cfg(test)]
mod tests;
mod updater;

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

pub use error::PageError;

use crate::page::shared::Shared;
use crate::plan::page::PagePlan;

/// Priority of the page's threads: well below ranks and simulators.
const NICENESS: i32 = 10;

/// Time for the last state to reach the browsers that are connected when the launch ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// A page that is served. It ends when this value is dropped.
#[derive(Debug)]
pub struct LivePage {
    address: SocketAddr,
    end: Option<watch::Sender<bool>>,
    thread: Option<JoinHandle<()>>,
    ended: mpsc::Receiver<()>,
}

impl LivePage {
    /// Serves the page of the run in `folder` from now on, for the launch with this id.
    ///
    /// # Errors
    /// Returns a [`PageError`] if the address cannot be used.
    pub fn open(plan: &PagePlan, folder: &Path, launch: &str) -> Result<Self, PageError> {
        let wanted = plan.address();
        let unusable = |err| PageError::Address {
            address: wanted,
            err,
        };
        let listener = TcpListener::bind(wanted).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let shared = Arc::new(Shared::new(plan, folder, launch));
        shared.clear_folder();
        let (end, is_over) = watch::channel(false);
        let (over, ended) = mpsc::channel();
        let body = move || {
            serve(listener, shared, is_over);
            // The receiver is gone if nobody waits any more.
            let _ = over.send(());
        };
        let thread = thread::Builder::new().name("page".to_owned()).spawn(body);
        Ok(Self {
            address,
            end: Some(end),
            thread: Some(thread.map_err(PageError::Thread)?),
            ended,
        })
    }

    /// Checks that the address can be used, before a launch writes anything.
    ///
    /// # Errors
    /// Returns [`PageError::Address`] if it cannot.
    pub fn check(plan: &PagePlan) -> Result<(), PageError> {
        let address = plan.address();
        match TcpListener::bind(address) {
            Ok(_) => Ok(()),
            Err(err) => Err(PageError::Address { address, err }),
        }
    }

    /// Returns the address on which the page is served.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for LivePage {
    /// Shows the last state, and ends the thread. A disk that does not answer ends the wait.
    fn drop(&mut self) {
        drop(self.end.take());
        if self.ended.recv_timeout(2 * FAREWELL).is_ok()
            && let Some(thread) = self.thread.take()
        {
            // A panic there has been printed, and is no reason for one here.
            let _ = thread.join();
        }
    }
}

fn serve(listener: TcpListener, shared: Arc<Shared>, is_over: watch::Receiver<bool>) {
    // On Linux this is the priority of the calling thread and of those that it starts. Without
    // permission the page has the same priority as the launcher.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(err) => return tracing::warn!(%err, "the page cannot be served"),
    };
    if let Err(err) = runtime.block_on(server::run(listener, shared, is_over)) {
        tracing::warn!(%err, "the page is no longer served");
    }
    // A read of a disk that hangs must not keep the launcher.
    runtime.shutdown_background();
}
