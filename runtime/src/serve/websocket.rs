//! The connections of WebSocket clients. As openpi's `WebsocketPolicyServer` does, the server sends
//! its metadata first; an error is sent as text, after which the connection is closed. A client
//! whose first message is a `hello` of vla-eval is served by `vla_eval`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, Join, ReadBuf, join};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use wire::Dialect;

use crate::protocols::openpi::{self, OpenpiServer};
use crate::protocols::vla_eval::{self, VlaEvalServer};
use crate::serve::connections::ConnectionId;
use crate::serve::server::ServerState;
use crate::serve::session::{CloseReason, Peer, Received, Session, slow, within};

/// Time limit from the first to the last byte of a message, and for sending an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the memory held by a connection is updated.
const LOOK: Duration = Duration::from_secs(1);

/// Size of the read buffer of each connection.
const READ_BYTES: usize = 16 << 10;

/// Bytes that are read before the task yields to other connections, and before the count is
/// reported.
const SLICE: usize = 256 << 10;

/// Close reason that openpi sends after an error.
const CLOSED: &str = "Internal server error. Traceback included in previous frame.";

/// Serves a client until it disconnects; `rest` is what was read after its handshake. Unless
/// `is_silent`, the server speaks first.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub async fn serve(
    stream: TcpStream,
    rest: Vec<u8>,
    session: Session,
    is_silent: bool,
) -> Result<(), CloseReason> {
    let mut peer = WebsocketPeer::new(stream, rest, &session).await;
    let card = &session.server.card;
    let vla_eval = VlaEvalServer::new(card, !is_silent);
    if is_silent {
        return session.serve(peer, vla_eval, None).await;
    }
    let mut metadata = openpi::metadata(card);
    vla_eval::greet_early(&mut metadata, card);
    let metadata = wire::write(&metadata, Dialect::Openpi);
    peer.send(Message::Binary(metadata.into())).await?;
    let Some(first) = peer.hear().await? else {
        return Ok(());
    };
    match &first.body {
        Ok(body) if vla_eval::is_hello(body) => session.serve(peer, vla_eval, Some(first)).await,
        _ => {
            let openpi = OpenpiServer::default();
            session.serve(peer, openpi, Some(first)).await
        }
    }
}

struct WebsocketPeer {
    socket: WebSocketStream<Join<Metered, OwnedWriteHalf>>,
    held: Arc<AtomicUsize>,
    server: Arc<ServerState>,
    id: ConnectionId,
}

impl WebsocketPeer {
    async fn new(stream: TcpStream, rest: Vec<u8>, session: &Session) -> Self {
        let (server, id) = (Arc::clone(&session.server), session.id);
        let most = Some(server.rules.max_message << 20);
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_message_size(most)
            .max_frame_size(most);
        let held = Arc::new(AtomicUsize::new(rest.len()));
        let holder = Arc::clone(&server);
        let (stream, answers) = stream.into_split();
        let asked = Metered {
            stream,
            read: Arc::clone(&held),
            slice: 0,
            tell: Box::new(move |held| holder.hold(id, held)),
        };
        let both = join(asked, answers);
        let socket = WebSocketStream::from_partially_read(both, rest, Role::Server, Some(config));
        let socket = socket.await;
        Self {
            socket,
            held,
            server,
            id,
        }
    }

    /// Returns the next message. A client may be silent between messages, but not in the middle of
    /// one.
    async fn next(&mut self) -> Result<Option<Message>, CloseReason> {
        let mut since = None;
        loop {
            tokio::select! {
                message = self.socket.next() => {
                    self.held.store(0, Ordering::Relaxed);
                    return match message {
                        None | Some(Err(Error::ConnectionClosed)) => Ok(None),
                        // Most clients disconnect without a closing handshake.
                        Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => Ok(None),
                        Some(Ok(message)) => Ok(Some(message)),
                        Some(Err(err)) => Err(self.failed(err).await),
                    };
                }
                () = tokio::time::sleep(LOOK) => {
                    let held = self.held.load(Ordering::Relaxed);
                    self.server.hold(self.id, held);
                    if held > 0 && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                        return Err(slow());
                    }
                }
            }
        }
    }

    /// Tells a client that broke the protocol why the connection is closed.
    async fn failed(&mut self, err: Error) -> CloseReason {
        let code = match err {
            Error::Io(_) => return err.into(),
            Error::Capacity(_) => CloseCode::Size,
            _ => CloseCode::Protocol,
        };
        self.close_with(code, &err.to_string()).await.ok();
        err.into()
    }

    async fn close_with(&mut self, code: CloseCode, reason: &str) -> Result<(), CloseReason> {
        // A control frame has room for 125 bytes.
        let reason: String = reason.chars().filter(char::is_ascii).take(120).collect();
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        within(PATIENCE, self.socket.close(Some(frame))).await
    }
}

impl Peer for WebsocketPeer {
    fn stream(&self) -> &TcpStream {
        self.socket.get_ref().reader().stream.as_ref()
    }

    async fn hear(&mut self) -> Result<Option<Received>, CloseReason> {
        while let Some(message) = self.next().await? {
            match message {
                Message::Binary(body) => {
                    let (bytes, body) = (body.len(), Ok(body));
                    return Ok(Some(Received { body, bytes }));
                }
                Message::Text(_) => {
                    let text = "expected a binary message, msgpack with arrays of numpy";
                    self.send(Message::text(text)).await?;
                    self.close().await?;
                    return Ok(None);
                }
                // tungstenite answers pings, and ends the stream after a close.
                Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {}
            }
        }
        Ok(None)
    }

    async fn send(&mut self, message: Message) -> Result<(), CloseReason> {
        within(PATIENCE, self.socket.send(message)).await
    }

    async fn close(&mut self) -> Result<(), CloseReason> {
        self.close_with(CloseCode::Error, CLOSED).await
    }
}

/// The half of a TCP stream that is read, which counts the bytes read from it since the counter was
/// last set to 0, because tungstenite does not report how much of a message it holds.
struct Metered {
    stream: OwnedReadHalf,
    read: Arc<AtomicUsize>,
    /// Bytes read since the task last yielded.
    slice: usize,
    /// Called with the number of bytes read, after each slice.
    tell: Box<dyn Fn(usize) + Send>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.slice >= SLICE {
            self.slice = 0;
            (self.tell)(self.read.load(Ordering::Relaxed));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_pending() {
            self.slice = 0;
        }
        ready!(polled)?;
        let count = buf.filled().len() - before;
        self.slice += count;
        self.read.fetch_add(count, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}
