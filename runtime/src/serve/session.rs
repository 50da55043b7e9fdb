//! The session of one client, the same for every protocol: it hears a message, answers it, and
//! watches meanwhile for the end of the connection. Also how a connection ends: for which reason
//! the server closes it, and how it notices that the client has closed it.
//!
//! ```text
//! bytes ◄─► Peer (zmtp, websocket) ─ message ─► ServerCodec (crate::protocols) ─► policy
//!                 ▲────────────── Reply ◄──────────────┘
//! ```

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::clock::now;
use crate::serve::card::ServedSpec;
use crate::serve::client::ClientEpisode;
use crate::serve::connections::ConnectionId;
use crate::serve::request::{RequestError, RequestLimits};
use crate::serve::server::ServerState;

/// Interval at which a waiting client that has sent more data is checked for disconnection.
const LOOK: Duration = Duration::from_millis(200);

/// One end of a connection, which knows how messages are framed.
pub trait Peer {
    /// Returns the connection itself.
    fn stream(&self) -> &TcpStream;

    /// Waits for the next message; `None` if the client has disconnected.
    async fn hear(&mut self) -> Result<Option<Received>, CloseReason>;

    /// Sends the answer to the last message.
    async fn send(&mut self, message: Message) -> Result<(), CloseReason>;

    /// Tells the client that an error ends the connection, if its protocol can.
    async fn close(&mut self) -> Result<(), CloseReason> {
        Ok(())
    }
}

/// A message of a client.
#[derive(Debug)]
pub struct Received {
    /// Its content, or why it cannot be a message of any protocol.
    pub body: Result<Bytes, RequestError>,
    /// Bytes that it holds, with its envelope.
    pub bytes: usize,
}

/// What follows a message; by default nothing.
#[derive(Debug, Default)]
pub struct Reply {
    /// What is sent, if the message needs an answer.
    pub message: Option<Message>,
    /// How the request ended, for statistics; `None` for a message that asks for nothing.
    pub outcome: Option<Result<(), RequestError>>,
    /// What happens after the answer.
    pub then: Then,
}

/// What happens after an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Then {
    /// The client may send more.
    #[default]
    GoOn,
    /// The connection is closed, as its protocol wants it after such an error.
    Close,
    /// The server stops.
    Stop,
}

impl Reply {
    /// Sends `message` about a request that ended so.
    pub fn to_request(message: impl Into<Bytes>, outcome: Result<(), RequestError>) -> Self {
        Self {
            outcome: Some(outcome),
            ..Self::control(message)
        }
    }

    /// Sends `message`, which no statistics count.
    pub fn control(message: impl Into<Bytes>) -> Self {
        Self {
            message: Some(Message::Binary(message.into())),
            ..Self::default()
        }
    }
}

/// The server's half of a protocol, with what it remembers of one client.
pub trait ServerCodec {
    /// Answers a message.
    async fn answer(&mut self, client: &mut Session, body: Result<Bytes, RequestError>) -> Reply;

    /// Returns how many bytes of earlier messages are kept.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// One client, whatever it speaks. When it is dropped, its connection is removed from the server's
/// state.
pub struct Session {
    /// The server.
    pub server: Arc<ServerState>,
    /// The connection.
    pub id: ConnectionId,
    /// The episode, from which the randomness of its actions is derived.
    pub episode: ClientEpisode,
}

impl Session {
    /// Creates the session of a client that has sent nothing yet.
    pub fn new(server: Arc<ServerState>, id: ConnectionId) -> Self {
        Self {
            episode: ClientEpisode::new(id),
            server,
            id,
        }
    }

    /// Decodes a message of `bytes` bytes in a background thread, which does all the work that
    /// takes time in proportion to its size.
    ///
    /// # Errors
    /// Returns the reason if the message was not decoded.
    pub async fn decode<T: Send + 'static>(
        &self,
        bytes: usize,
        decode: impl FnOnce(&ServedSpec, &RequestLimits) -> T + Send + 'static,
    ) -> Result<T, RequestError> {
        let (card, limits) = (Arc::clone(&self.server.card), self.server.limits);
        let decode = move || decode(&card, &limits);
        self.server.decoder.run(bytes, decode).await
    }

    /// Counts a request that could be read.
    pub fn asks(&self, endpoint: &str) {
        self.server.stats().asked(endpoint);
        self.server.connections().known(self.id);
    }

    /// Serves the client until it disconnects. Its first message may have been heard.
    ///
    /// # Errors
    /// Returns the reason if the server closed the connection.
    pub async fn serve(
        mut self,
        mut peer: impl Peer,
        mut codec: impl ServerCodec,
        first: Option<Received>,
    ) -> Result<(), CloseReason> {
        let (server, id) = (Arc::clone(&self.server), self.id);
        let mut heard = match first {
            None => peer.hear().await?,
            first => first,
        };
        while let Some(Received { body, bytes }) = heard {
            let asked = now();
            server.connections().asked(id, asked);
            server.hold(id, bytes);
            let reply = tokio::select! {
                reply = codec.answer(&mut self, body) => reply,
                () = gone(peer.stream()) => return Ok(()),
            };
            if let Some(message) = reply.message {
                peer.send(message).await?;
            }
            if let Some(outcome) = &reply.outcome {
                server.stats().answered(asked.elapsed(), outcome, now());
            }
            server.connections().answered(id, now());
            server.keep(id, codec.kept_bytes());
            match reply.then {
                Then::GoOn => {}
                Then::Close => return peer.close().await,
                Then::Stop => server.end("a client asked for it"),
            }
            heard = peer.hear().await?;
        }
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.server.forget(self.id);
    }
}

/// The reason why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// An error of the network.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What the client did, for which the server closed the connection.
    #[error("{0}")]
    Violation(String),
}

impl From<tungstenite::Error> for CloseReason {
    fn from(err: tungstenite::Error) -> Self {
        match err {
            tungstenite::Error::Io(err) => Self::Io(err),
            other => Self::Violation(format!("websocket: {other}")),
        }
    }
}

impl From<String> for CloseReason {
    fn from(reason: String) -> Self {
        Self::Violation(reason)
    }
}

/// The reason for a client that sent or read too slowly.
pub fn slow() -> CloseReason {
    let reason = "nothing was received in the middle of a message for too long";
    CloseReason::Violation(reason.to_owned())
}

/// Does what the client must not delay for longer than `limit`.
///
/// # Errors
/// Returns the step's error, or that the client is slow.
pub async fn within<T, E: Into<CloseReason>>(
    limit: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, CloseReason> {
    let done = timeout(limit, step).await.map_err(|_| slow())?;
    done.map_err(E::into)
}

/// Waits until the peer has closed the connection, even if unread data precedes the close.
async fn gone(stream: &TcpStream) {
    // Data is not read before the current request has its answer, so readiness does not change when
    // the close arrives behind it. Poll instead.
    while let Ok(1..) = stream.peek(&mut [0]).await {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(LOOK).await,
            _ => return,
        }
    }
}
