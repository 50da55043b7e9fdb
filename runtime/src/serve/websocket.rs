//! Serves one WebSocket client as openpi's `WebsocketPolicyServer` does: it sends the metadata
//! first, and then an answer for each message. An error is sent as text, after which the connection
//! is closed. A client whose first message is a `hello` of vla-eval is served by `vla_eval`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use wire::Dialect;

use crate::clock::now;
use crate::serve::close::{CloseReason, gone};
use crate::serve::connections::ConnectionId;
use crate::serve::metered::Metered;
use crate::serve::openpi::OpenpiClient;
use crate::serve::reply::WebsocketReply;
use crate::serve::server::ServerState;
use crate::serve::vla_eval::{self, VlaEvalClient};

/// Time limit from the first to the last byte of a message, and for sending an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often the memory held by a connection is updated.
const LOOK: Duration = Duration::from_secs(1);

/// Size of the read buffer of each connection.
const READ_BYTES: usize = 16 << 10;

/// Close reason that openpi sends after an error.
const CLOSED: &str = "Internal server error. Traceback included in previous frame.";

/// The protocol of a client, with its state.
enum WebsocketClient {
    Openpi(OpenpiClient),
    VlaEval(VlaEvalClient),
}

impl WebsocketClient {
    async fn answer(&mut self, body: Bytes) -> WebsocketReply {
        match self {
            Self::Openpi(client) => match client.answer(body).await {
                Ok(bytes) => WebsocketReply::Answer(bytes),
                Err(err) => {
                    err.count(&client.server().stats);
                    WebsocketReply::LastText(err.to_string())
                }
            },
            Self::VlaEval(client) => client.answer(body).await,
        }
    }

    /// Returns how many bytes of earlier messages are kept.
    fn kept_bytes(&self) -> usize {
        match self {
            Self::Openpi(_) => 0,
            Self::VlaEval(client) => client.kept_bytes(),
        }
    }
}

/// Serves a client until it disconnects; `rest` is what was read after its handshake. Unless
/// `is_silent`, the server speaks first.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub async fn serve(
    stream: TcpStream,
    rest: Vec<u8>,
    server: Arc<ServerState>,
    id: ConnectionId,
    is_silent: bool,
) -> Result<(), CloseReason> {
    let mut peer = WebsocketPeer::new(stream, rest, server, id).await;
    let mut client = peer.greet(is_silent).await?;
    let mut is_first = true;
    while let Some(message) = peer.hear().await? {
        match message {
            Message::Binary(body) => {
                if is_first && !is_silent && vla_eval::is_hello(&body) {
                    let server = Arc::clone(&peer.server);
                    client = WebsocketClient::VlaEval(VlaEvalClient::new(server, id, true));
                }
                is_first = false;
                if peer.answer(&mut client, body).await?.is_none() {
                    return Ok(());
                }
            }
            Message::Text(_) => {
                return peer
                    .refuse("expected a binary message, msgpack with arrays of numpy")
                    .await;
            }
            // tungstenite answers pings, and ends the stream after a close.
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_) => {}
        }
    }
    Ok(())
}

struct WebsocketPeer {
    socket: WebSocketStream<Metered>,
    held: Arc<AtomicUsize>,
    /// Bytes of earlier messages that the client's state keeps.
    kept: Arc<AtomicUsize>,
    server: Arc<ServerState>,
    id: ConnectionId,
}

impl WebsocketPeer {
    async fn new(
        stream: TcpStream,
        rest: Vec<u8>,
        server: Arc<ServerState>,
        id: ConnectionId,
    ) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(READ_BYTES)
            .max_message_size(Some(server.most_bytes))
            .max_frame_size(Some(server.most_bytes));
        let held = Arc::new(AtomicUsize::new(rest.len()));
        let kept = Arc::new(AtomicUsize::new(0));
        let (holder, keeper) = (Arc::clone(&server), Arc::clone(&kept));
        let stream = Metered::new(
            stream,
            Arc::clone(&held),
            Box::new(move |held| holder.hold(id, held + keeper.load(Ordering::Relaxed))),
        );
        let socket =
            WebSocketStream::from_partially_read(stream, rest, Role::Server, Some(config)).await;
        Self {
            socket,
            held,
            kept,
            server,
            id,
        }
    }

    /// Sends the first message, unless the client has to speak first.
    async fn greet(&mut self, is_silent: bool) -> Result<WebsocketClient, CloseReason> {
        let server = Arc::clone(&self.server);
        if is_silent {
            let client = VlaEvalClient::new(server, self.id, false);
            return Ok(WebsocketClient::VlaEval(client));
        }
        let client = OpenpiClient::new(server, self.id);
        let mut metadata = client.metadata();
        vla_eval::greet_early(&mut metadata, &self.server.card);
        let metadata = wire::write(&metadata, Dialect::Openpi);
        self.send(Message::Binary(metadata.into())).await?;
        Ok(WebsocketClient::Openpi(client))
    }

    /// Answers one message; returns `None` if the client has disconnected or its connection was
    /// closed.
    async fn answer(
        &mut self,
        client: &mut WebsocketClient,
        body: Bytes,
    ) -> Result<Option<()>, CloseReason> {
        let asked = now();
        self.server.connections().asked(self.id, asked);
        self.server.hold(self.id, body.len() + client.kept_bytes());
        let answer = tokio::select! {
            answer = client.answer(body) => answer,
            () = gone(self.socket.get_ref().stream()) => return Ok(None),
        };
        let is_error = match &answer {
            WebsocketReply::Answer(_) => Some(false),
            WebsocketReply::Error(_) | WebsocketReply::Last(_) | WebsocketReply::LastText(_) => {
                Some(true)
            }
            WebsocketReply::Control(_) | WebsocketReply::Nothing => None,
        };
        let sent = match answer {
            WebsocketReply::Answer(bytes)
            | WebsocketReply::Error(bytes)
            | WebsocketReply::Control(bytes) => self.send(Message::Binary(bytes)).await.map(Some),
            WebsocketReply::Nothing => Ok(Some(())),
            WebsocketReply::Last(bytes) => self.close_after(Message::Binary(bytes)).await,
            WebsocketReply::LastText(text) => self.close_after(Message::text(text)).await,
        };
        if let Some(is_error) = is_error {
            self.server.stats.answered(asked.elapsed(), is_error, now());
        }
        self.server.connections().answered(self.id, now());
        let kept = client.kept_bytes();
        self.kept.store(kept, Ordering::Relaxed);
        self.server.hold(self.id, kept);
        sent
    }

    /// Returns the next message. A client may be silent between messages, but not in the middle of
    /// one.
    async fn hear(&mut self) -> Result<Option<Message>, CloseReason> {
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
                        Some(Err(Error::Io(err))) => Err(CloseReason::Io(err)),
                        Some(Err(err)) => self.violated(err).await,
                    };
                }
                () = tokio::time::sleep(LOOK) => {
                    let held = self.held.load(Ordering::Relaxed);
                    self.server.hold(self.id, held + self.kept.load(Ordering::Relaxed));
                    if held > 0 && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
                        return Err(CloseReason::Slow);
                    }
                }
            }
        }
    }

    async fn violated(&mut self, err: Error) -> Result<Option<Message>, CloseReason> {
        let code = if matches!(err, Error::Capacity(_)) {
            CloseCode::Size
        } else {
            CloseCode::Protocol
        };
        self.close(code, &err.to_string()).await.ok();
        Err(CloseReason::Websocket(err.to_string()))
    }

    /// Sends an error text and closes the connection.
    async fn refuse(&mut self, text: &str) -> Result<(), CloseReason> {
        self.close_after(Message::text(text)).await.map(drop)
    }

    /// Sends an error and closes the connection; returns `None`.
    async fn close_after(&mut self, last: Message) -> Result<Option<()>, CloseReason> {
        self.send(last).await?;
        self.close(CloseCode::Error, CLOSED).await.map(|()| None)
    }

    async fn close(&mut self, code: CloseCode, reason: &str) -> Result<(), CloseReason> {
        // A control frame has room for 125 bytes.
        let reason: String = reason.chars().filter(char::is_ascii).take(120).collect();
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        timeout(PATIENCE, self.socket.close(Some(frame)))
            .await
            .map_err(|_| CloseReason::Slow)?
            .map_err(closed)
    }

    async fn send(&mut self, message: Message) -> Result<(), CloseReason> {
        timeout(PATIENCE, self.socket.send(message))
            .await
            .map_err(|_| CloseReason::Slow)?
            .map_err(closed)
    }
}

fn closed(err: Error) -> CloseReason {
    match err {
        Error::Io(err) => CloseReason::Io(err),
        other => CloseReason::Websocket(other.to_string()),
    }
}
