//! The listener: accepts connections and dispatches each by its protocol. Connections also come by
//! the front port, which `rrun` opens for all ranks of a node: those that it gives to this rank.
//! The other end is `launcher/src/front`, where the bytes of the link are described.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net as unix;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::OptionFuture;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::clock::now;
use crate::serve::connections::Admitted;
use crate::serve::server::ServerState;
use crate::serve::session::{CloseReason, Session, within};
use crate::serve::stats::Counted;
use crate::serve::{http, zmtp};

/// Time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`, until a file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(50);

/// Closed connections that are reported at once.
const MOST_CLOSED: usize = 64;

/// Accepts connections, also those that come by the front port, until a stop is requested.
pub async fn run(
    listener: TcpListener,
    mut front: Option<Arc<FrontLink>>,
    server: Arc<ServerState>,
) {
    let mut stop = server.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| (stream, None)),
            Some(given) = OptionFuture::from(front.as_ref().map(FrontLink::accept)) => {
                if let Err(err) = &given {
                    tracing::debug!(%err, "the front port is closed");
                    front = None;
                    continue;
                }
                given.map(|(stream, connection)| (stream, Some(connection)))
            }
            _ = stop.wait_for(Option::is_some) => return,
        };
        match accepted {
            Ok((stream, connection)) => admit(stream, connection, &server),
            Err(err) => {
                tracing::debug!(%err, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, front: Option<FrontConnection>, server: &Arc<ServerState>) {
    server.stats().count(Counted::Connection);
    let needs_token = server.rules.api_token.is_some();
    let admitted = server.connections().admit(needs_token, now());
    let Some(Admitted {
        client,
        evicted,
        until,
    }) = admitted
    else {
        server.stats().count(Counted::Evicted);
        return;
    };
    if evicted.is_some() {
        server.stats().count(Counted::Evicted);
    }
    // An error only delays answers.
    stream.set_nodelay(true).ok();
    let (session, server) = (Session::new(Arc::clone(server), client), Arc::clone(server));
    tokio::spawn(async move {
        // Tells the front port at the end that the connection is closed.
        let _front = front;
        let ended = tokio::select! {
            ended = welcome(stream, session) => ended,
            _ = until => Ok(()),
        };
        if let Err(reason) = ended {
            if !matches!(reason, CloseReason::Io(_)) {
                server.stats().count(Counted::Violation);
            }
            tracing::debug!(client = client.0, %reason, "closed");
        }
    });
}

async fn welcome(stream: TcpStream, session: Session) -> Result<(), CloseReason> {
    let mut first = [0];
    if within(FIRST_BYTE, stream.peek(&mut first)).await? == 0 {
        return Ok(());
    }
    match first[0] {
        0xff => zmtp::serve(stream, session).await,
        _ => http::serve(stream, session).await,
    }
}

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
