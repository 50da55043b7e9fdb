//! The front port that `rrun` opens for all ranks of a node: takes the connections that it gives
//! to this rank.
//!
//! The other end is `launcher/src/front`, where the bytes of the link are described.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{TcpStream, UnixStream};

/// Closed connections that are reported at once.
const MOST_CLOSED: usize = 64;

/// The link to the front port.
#[derive(Debug)]
pub struct FrontLink {
    stream: UnixStream,
    /// Closed connections that are to be reported.
    closed: AtomicUsize,
}

/// Reports that a connection is closed when it is dropped.
#[derive(Debug)]
pub struct FrontConnection(Arc<FrontLink>);

impl FrontLink {
    /// Connects to the front port and reports that this local rank is ready.
    ///
    /// # Errors
    /// Returns the system's error.
    pub async fn join(socket: &str, local_rank: usize) -> io::Result<Arc<Self>> {
        let address = unix::SocketAddr::from_abstract_name(socket)?;
        let stream = unix::UnixStream::connect_addr(&address)?;
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        let greeting = u32::try_from(local_rank).unwrap_or(u32::MAX).to_le_bytes();
        stream.writable().await?;
        // Four bytes fit into the buffer of a new socket.
        stream.try_write(&greeting)?;
        let closed = AtomicUsize::new(0);
        Ok(Arc::new(Self { stream, closed }))
    }

    /// Waits for the next connection. Cancel-safe: dropping the future loses nothing.
    ///
    /// # Errors
    /// Returns an error if the launcher is gone.
    pub async fn accept(self: &Arc<Self>) -> io::Result<(TcpStream, FrontConnection)> {
        let stream = &self.stream;
        loop {
            let received = stream.async_io(Interest::READABLE, || receive(stream));
            let received = received.await?;
            // Dropped if the connection cannot be used, which reports it as closed.
            let connection = FrontConnection(Arc::clone(self));
            // Without a descriptor, this process had none free.
            let Some(descriptor) = received else {
                continue;
            };
            let socket = std::net::TcpStream::from(descriptor);
            if socket.set_nonblocking(true).is_ok()
                && let Ok(socket) = TcpStream::from_std(socket)
            {
                return Ok((socket, connection));
            }
        }
    }
}

/// Receives one byte, and the connection that comes with it.
fn receive(stream: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut bytes = [IoSliceMut::new(&mut byte)];
    let received = recvmsg(stream, &mut bytes, &mut ancillary, flags)?;
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(descriptors.last())
}

impl Drop for FrontConnection {
    fn drop(&mut self) {
        let FrontLink { stream, closed } = &*self.0;
        let count = closed.fetch_add(1, Ordering::Relaxed) + 1;
        // What does not fit into the buffer is reported with the next connection.
        if let Ok(written) = stream.try_write(&[0; MOST_CLOSED][..count.min(MOST_CLOSED)]) {
            closed.fetch_sub(written, Ordering::Relaxed);
        }
    }
}
