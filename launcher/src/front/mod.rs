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

use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::time::Duration;

use anyhow::Context as _;
use jobs::rank_env::front_socket;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::select;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::front::balancer::{Balancer, LinkId};
use crate::plan::ServePlan;
use crate::say;

/// Pause after a failed `accept`, and while no rank takes connections: as long as it takes until a
/// file descriptor or a place in a link's buffer is free.
const PAUSE: Duration = Duration::from_millis(10);

/// Time limit for the first bytes of a rank.
const GREETING: Duration = Duration::from_secs(10);

/// Closed connections that are read at once.
const MOST_CLOSED: usize = 4096;

/// News of links that wait to be read; a full queue slows the ranks that send them.
const MOST_NEWS: usize = 64;

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
    /// Returns an error if the address, or the socket for ranks, cannot be used.
    pub fn open(plan: Option<&ServePlan>, nproc: usize) -> anyhow::Result<Option<Self>> {
        let Some(wanted) = plan.and_then(|plan| plan.front) else {
            return Ok(None);
        };
        let listening = || {
            let listener = std::net::TcpListener::bind(wanted)?;
            listener.set_nonblocking(true)?;
            Ok((listener.local_addr()?, TcpListener::from_std(listener)?))
        };
        let listening: io::Result<_> = listening();
        let (address, listener) =
            listening.with_context(|| format!("cannot listen on {wanted} (--front-port)"))?;
        // Nobody can guess the name, and the kernel frees it with the process.
        let socket = jobs::launch::fresh_id().map(|secret| front_socket(&secret));
        let bound = socket.and_then(|socket| Ok((bind(&socket)?, socket)));
        let (ranks, socket) =
            bound.context("cannot open the socket by which ranks get connections")?;
        let (news, inbox) = mpsc::channel(MOST_NEWS);
        let front = Front {
            address,
            nproc,
            listener,
            ranks,
            balancer: Balancer::default(),
            links: BTreeMap::new(),
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

/// News of a link.
enum News {
    /// The rank with this local rank is ready.
    Joined(usize, OwnedWriteHalf),
    /// So many of its connections were closed.
    Closed(u64),
    /// The rank has stopped or died.
    Gone,
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
    /// The links to the ranks that are ready: Unix sockets with connections one way and closed
    /// connections the other. A rank sends its local rank as a little-endian `u32`, then one byte
    /// for each connection that it got here and that is closed. It receives one byte with each.
    links: BTreeMap<LinkId, OwnedWriteHalf>,
    /// A connection that no rank could take yet.
    held: Option<std::net::TcpStream>,
    next: u64,
    news: mpsc::Sender<(LinkId, News)>,
    inbox: mpsc::Receiver<(LinkId, News)>,
}

impl Front {
    async fn run(mut self) {
        loop {
            let is_accepting = self.held.is_none() && !self.links.is_empty();
            select! {
                Some((link, news)) = self.inbox.recv() => self.heard(link, news),
                joined = self.ranks.accept() => match joined {
                    Ok((stream, _)) => self.follow(stream),
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

    /// Waits in a task of its own for what the rank of a new link sends.
    fn follow(&mut self, stream: UnixStream) {
        let link = LinkId(self.next);
        self.next += 1;
        tokio::spawn(follow(link, stream, self.news.clone()));
    }

    fn heard(&mut self, id: LinkId, news: News) {
        match news {
            News::Joined(local_rank, to_rank) => {
                self.balancer.join(id, local_rank);
                self.links.insert(id, to_rank);
                self.say(local_rank, "is ready");
            }
            News::Closed(count) => self.balancer.closed(id, count),
            News::Gone => self.leave(id),
        }
    }

    fn leave(&mut self, link: LinkId) {
        self.links.remove(&link);
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
            let Some(link) = self.links.get(&id) else {
                continue;
            };
            match pass_on(link, &stream) {
                Ok(()) => return self.balancer.opened(id),
                Err(err) if is_full(&err) => {}
                Err(_) => self.leave(id),
            }
        }
        self.held = Some(stream);
    }
}

/// Waits for the local rank of a new link, and then for what its rank sends until it is gone. The
/// front port is closed if nobody receives the news.
async fn follow(link: LinkId, stream: UnixStream, news: mpsc::Sender<(LinkId, News)>) {
    let own = rustix::process::geteuid().as_raw();
    if !stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
        return;
    }
    let (mut from_rank, to_rank) = stream.into_split();
    let Ok(Ok(local_rank)) = timeout(GREETING, from_rank.read_u32_le()).await else {
        return;
    };
    let mut next = News::Joined(local_rank as usize, to_rank);
    while news.send((link, next)).await.is_ok() {
        next = match from_rank.read(&mut [0; MOST_CLOSED]).await {
            Ok(count @ 1..) => News::Closed(count as u64),
            Ok(0) | Err(_) => break,
        };
    }
    news.send((link, News::Gone)).await.ok();
}

/// Passes a connection on by a link without waiting.
///
/// # Errors
/// Returns `WouldBlock` if the rank has too many connections to take, and the system's error if it
/// is gone.
fn pass_on(link: &OwnedWriteHalf, connection: &std::net::TcpStream) -> io::Result<()> {
    let stream: &UnixStream = link.as_ref();
    stream.try_io(Interest::WRITABLE, || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let descriptors = [connection.as_fd()];
        // Cannot fail: the space is that of one descriptor.
        ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendmsg(stream, &[IoSlice::new(&[0])], &mut ancillary, flags)?;
        Ok(())
    })
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
