//! The page of a run while it lasts (`rrun eval --page`).
//!
//! ```text
//! browser ──► http ─► access (pure): token, host name       connections have limits and deadlines
//!              │
//!              ├─ page, news ◄── state (pure): newest fragments, numbered ◄── look ◄── journals
//!              ├─ files: films that a journal names, pictures, hang reports
//!              └─ commands ──► live/commands.json ──► ranks
//! ```
//! The page has a thread of its own with a low priority, so that it never delays the agent or a
//! rank. A browser asks what has changed since it last asked, and gets the newest state of that as soon
//! as there is some: nothing is queued for a slow one. Journals are read only while somebody asks.

mod access;
mod files;
mod http;
mod look;
mod state;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use tokio::select;
use tokio::sync::watch;

use crate::page::state::PageState;
use crate::plan::server::PagePlan;

/// Priority of the page's threads: well below ranks and simulators.
const NICENESS: i32 = 10;

/// Time in which browsers, which always ask, get the last state when the launch has ended.
const FAREWELL: Duration = Duration::from_millis(1200);

/// A page that is served. It ends when this value is dropped.
#[derive(Debug)]
pub struct LivePage {
    address: SocketAddr,
    end: Option<watch::Sender<bool>>,
    ended: mpsc::Receiver<()>,
}

impl LivePage {
    /// Serves the page of the run in `folder` from now on, for the launch with this id.
    ///
    /// # Errors
    /// Says that the address cannot be used, or that the thread cannot be started.
    pub fn open(plan: &PagePlan, folder: &Path, launch: &str) -> anyhow::Result<Self> {
        let listener = bind(plan)?;
        let address = listener.local_addr()?;
        let page = Arc::new(PageState::new(plan, folder, launch));
        page.clear_folder();
        let (end, is_over) = watch::channel(false);
        let (over, ended) = mpsc::channel();
        let body = move || {
            if let Err(err) = serve(listener, page, is_over) {
                tracing::warn!(%err, "the page is no longer served");
            }
            // The receiver is gone if nobody waits any more.
            let _ = over.send(());
        };
        let thread = thread::Builder::new().name("page".to_owned()).spawn(body);
        thread.context("cannot start the thread of the page")?;
        Ok(Self {
            address,
            end: Some(end),
            ended,
        })
    }

    /// Checks that the address can be used, before a launch writes anything.
    ///
    /// # Errors
    /// Says that it cannot, and why.
    pub fn check(plan: &PagePlan) -> anyhow::Result<()> {
        bind(plan).map(drop)
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
        let _ = self.ended.recv_timeout(2 * FAREWELL);
    }
}

fn bind(plan: &PagePlan) -> anyhow::Result<TcpListener> {
    let address = plan.address();
    let listener = TcpListener::bind(address).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok(listener)
    });
    listener.map_err(|err| anyhow::anyhow!("cannot serve the page on {address} (--page): {err}"))
}

fn serve(
    listener: TcpListener,
    page: Arc<PageState>,
    is_over: watch::Receiver<bool>,
) -> io::Result<()> {
    // On Linux this is the priority of the calling thread and of those that it starts. Without
    // permission the page has the same priority as the launcher.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(4)
        .build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        select! {
            () = http::accept(listener, &page) => {}
            () = look::run(&page, is_over) => {}
        }
        Ok::<_, io::Error>(())
    })?;
    // A read of a disk that hangs must not keep the launcher.
    runtime.shutdown_background();
    Ok(())
}
