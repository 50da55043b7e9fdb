//! The link to one rank: a Unix socket with connections one way and closed connections the other.
//!
//! A rank sends its local rank as a little-endian `u32`, then one byte for each connection that it
//! got here and that is closed. It receives one byte with each connection.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::front::balancer::LinkId;

/// Time limit for the first bytes of a rank.
const GREETING: Duration = Duration::from_secs(10);

/// Closed connections that are read at once.
const MOST_CLOSED: usize = 4096;

/// The socket of a link, which is read by one task and written by another.
pub type LinkStream = Arc<UnixStream>;

/// A link to a rank that is ready.
#[derive(Debug)]
pub struct Link {
    /// Identifies it.
    pub id: LinkId,
    /// Its socket.
    pub stream: LinkStream,
}

/// News of a link.
#[derive(Debug)]
pub enum LinkNews {
    /// A rank is ready.
    Joined {
        /// Its link.
        link: LinkId,
        /// Its local rank.
        local_rank: usize,
        /// The socket of the link.
        stream: LinkStream,
    },
    /// Connections were closed.
    Closed {
        /// The link by which they were given.
        link: LinkId,
        /// Their number.
        count: u64,
    },
    /// The rank has stopped or died.
    Gone {
        /// Its link.
        link: LinkId,
    },
}

impl Link {
    /// Passes a connection on without waiting.
    ///
    /// # Errors
    /// Returns `WouldBlock` if the rank has too many connections to take, and the system's error
    /// if it is gone.
    pub fn send(&self, connection: &TcpStream) -> io::Result<()> {
        self.stream.try_io(Interest::WRITABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let descriptors = [connection.as_fd()];
            // Cannot fail: the space is that of one descriptor.
            ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            sendmsg(&*self.stream, &[IoSlice::new(&[0])], &mut ancillary, flags)?;
            Ok(())
        })
    }
}

/// Waits for the local rank of a new link, and then for what its rank sends until it is gone.
pub async fn greeted(link: LinkId, stream: UnixStream, news: mpsc::Sender<LinkNews>) {
    if !is_own(&stream) {
        return;
    }
    let stream: LinkStream = Arc::new(stream);
    let Ok(Ok(local_rank)) = timeout(GREETING, local_rank(&stream)).await else {
        return;
    };
    let joined = LinkNews::Joined {
        link,
        local_rank,
        stream: Arc::clone(&stream),
    };
    // The front port is closed if nobody receives the news.
    if news.send(joined).await.is_err() {
        return;
    }
    while let Ok(count @ 1..) = read(&stream, &mut [0; MOST_CLOSED]).await {
        let count = count as u64;
        if news.send(LinkNews::Closed { link, count }).await.is_err() {
            return;
        }
    }
    news.send(LinkNews::Gone { link }).await.ok();
}

/// Returns whether the other end is a process of the same user.
fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own)
}

async fn local_rank(stream: &UnixStream) -> io::Result<usize> {
    let mut greeting = [0; 4];
    let mut filled = 0;
    while filled < greeting.len() {
        match read(stream, &mut greeting[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => filled += more,
        }
    }
    Ok(u32::from_le_bytes(greeting) as usize)
}

/// Reads what is there, 0 bytes at the end.
async fn read(stream: &UnixStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(into) {
            Err(err) if err.kind() == io::ErrorKind::WouldBlock => {}
            read => return read,
        }
    }
}
