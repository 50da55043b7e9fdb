//! The front port of `serve`: one port of a node for all of its ranks.
//!
//! ```text
//! clients ─► front port ─ accept ─► balancer (pure): the rank with the fewest connections
//!                                      │ file descriptor (SCM_RIGHTS), over a Unix socket
//!                              ┌───────┼───────┐
//!                            rank 0  rank 1  rank 2     answer their clients themselves
//!                              └───────┴───────┘
//!                                one byte for each connection that is closed
//! ```
//! The launcher passes connections on and never reads from them, so nothing is copied, and
//! protocols, tokens and limits stay with the ranks. A rank joins when its policy is ready. It
//! leaves when its link closes, which it does when the rank stops or dies. While no rank is ready,
//! connections wait in the listener's backlog. The launcher holds one accepted connection at most.

mod balancer;
mod link;

use std::io;
use std::net::SocketAddr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::time::Duration;

use jobs::rank_env::front_socket;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::select;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::front::balancer::{Balancer, LinkId};
use crate::front::link::{Link, LinkNews, greeted};
use crate::plan::ServePlan;
use crate::say;

/// Pause after a failed `accept`, and while no rank takes connections: as long as it takes until a
/// file descriptor or a place in a link's buffer is free.
const PAUSE: Duration = Duration::from_millis(10);

/// News of links that wait to be read; a full queue slows the ranks that send them.
const MOST_NEWS: usize = 64;

/// The reason why there is no front port.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// The address cannot be used.
    #[error("cannot listen on {address} (--front-port): {err}")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// The socket of the ranks cannot be opened.
    #[error("cannot open the socket by which ranks get connections: {0}")]
    Socket(#[source] io::Error),
}

/// A front port that is open. It is closed when this value is dropped; connections that ranks have
/// stay open.
#[derive(Debug)]
pub struct FrontPort {
    address: SocketAddr,
    socket: String,
    task: JoinHandle<()>,
}

impl FrontPort {
    /// Opens the front port of a plan, if it has one, and passes connections on to ranks from now
    /// on. Must be called in a runtime.
    ///
    /// # Errors
    /// Returns a [`FrontError`] if an address cannot be used.
    pub fn open(plan: Option<&ServePlan>, nproc: usize) -> Result<Option<Self>, FrontError> {
        let Some(wanted) = plan.and_then(|plan| plan.front) else {
            return Ok(None);
        };
        let unusable = |err| FrontError::Address {
            address: wanted,
            err,
        };
        let listener = std::net::TcpListener::bind(wanted).map_err(unusable)?;
        listener.set_nonblocking(true).map_err(unusable)?;
        let address = listener.local_addr().map_err(unusable)?;
        let listener = TcpListener::from_std(listener).map_err(unusable)?;
        // Nobody can guess the name, and the kernel frees it with the process.
        let secret = jobs::launch::fresh_id().map_err(FrontError::Socket)?;
        let socket = front_socket(&secret);
        let ranks = bind(&socket).map_err(FrontError::Socket)?;
        let (news, inbox) = mpsc::channel(MOST_NEWS);
        let front = Front {
            address,
            nproc,
            listener,
            ranks,
            balancer: Balancer::default(),
            links: Vec::new(),
            held: None,
            next: 0,
            news,
            inbox,
        };
        Ok(Some(Self {
            address,
            socket,
            task: tokio::spawn(front.run()),
        }))
    }

    /// Returns the address that clients connect to, with its port even where any free one was wanted.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the name of the socket by which ranks get connections, in the abstract namespace.
    pub fn socket(&self) -> &str {
        &self.socket
    }
}

impl Drop for FrontPort {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bind(name: &str) -> io::Result<UnixListener> {
    let address = unix::SocketAddr::from_abstract_name(name)?;
    let listener = unix::UnixListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    UnixListener::from_std(listener)
}

/// The task behind a front port.
struct Front {
    address: SocketAddr,
    /// Number of ranks of this node.
    nproc: usize,
    listener: TcpListener,
    /// Where ranks connect.
    ranks: UnixListener,
    balancer: Balancer,
    links: Vec<Link>,
    /// A connection that no rank could take yet.
    held: Option<std::net::TcpStream>,
    next: u64,
    news: mpsc::Sender<LinkNews>,
    inbox: mpsc::Receiver<LinkNews>,
}

impl Front {
    async fn run(mut self) {
        loop {
            let is_accepting = self.held.is_none() && !self.links.is_empty();
            select! {
                Some(news) = self.inbox.recv() => self.heard(news),
                joined = self.ranks.accept() => match joined {
                    Ok((stream, _)) => self.greet(stream),
                    Err(_) => sleep(PAUSE).await,
                },
                accepted = self.listener.accept(), if is_accepting => match accepted {
                    Ok((stream, _)) => self.hold(stream),
                    // No file descriptor is free, or the client is gone.
                    Err(_) => sleep(PAUSE).await,
                },
                () = sleep(PAUSE), if self.held.is_some() && !self.links.is_empty() => {}
            }
            self.hand_over();
        }
    }

    /// Waits in a task of its own for what a new link says first.
    fn greet(&mut self, stream: UnixStream) {
        let link = LinkId(self.next);
        self.next += 1;
        tokio::spawn(greeted(link, stream, self.news.clone()));
    }

    fn heard(&mut self, news: LinkNews) {
        match news {
            LinkNews::Joined {
                link,
                local_rank,
                stream,
            } => {
                self.balancer.join(link, local_rank);
                self.links.push(Link { id: link, stream });
                self.say(local_rank, "is ready");
            }
            LinkNews::Closed { link, count } => self.balancer.closed(link, count),
            LinkNews::Gone { link } => self.leave(link),
        }
    }

    fn leave(&mut self, link: LinkId) {
        self.links.retain(|known| known.id != link);
        if let Some(local_rank) = self.balancer.leave(link) {
            self.say(local_rank, "is gone");
        }
    }

    fn say(&self, local_rank: usize, what: &str) {
        let (address, nproc) = (self.address, self.nproc);
        let ready = self.links.len();
        say::info(format_args!(
            "front port {address}: local rank {local_rank} {what}, {ready} of {nproc} take \
             connections"
        ));
    }

    fn hold(&mut self, stream: TcpStream) {
        // If this fails, the connection is closed, and its client connects again.
        self.held = stream.into_std().ok();
    }

    /// Passes the connection that is held on to the first rank that takes it.
    fn hand_over(&mut self) {
        let Some(stream) = self.held.take() else {
            return;
        };
        for id in self.balancer.order() {
            let Some(link) = self.links.iter().find(|link| link.id == id) else {
                continue;
            };
            match link.send(&stream) {
                Ok(()) => return self.balancer.opened(id),
                Err(err) if is_full(&err) => {}
                Err(_) => self.leave(id),
            }
        }
        self.held = Some(stream);
    }
}

/// Returns whether a link takes no more connections for now: its buffer is full, or the kernel
/// allows no more file descriptors under way.
fn is_full(err: &io::Error) -> bool {
    let too_many = rustix::io::Errno::TOOMANYREFS.raw_os_error();
    matches!(
        err.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::OutOfMemory
    ) || err.raw_os_error() == Some(too_many)
}

#[cfg(test)]
mod tests;
