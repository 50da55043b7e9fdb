//! The session of one client, the same for every protocol: it hears a message, answers it, and
//! watches meanwhile for the end of the connection.
//!
//! ```text
//! bytes ◄─► Peer (zmtp, websocket) ─ message ─► ServerCodec (crate::protocols) ─► policy
//!                 ▲────────────── Reply ◄──────────────┘
//! ```

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::clock::now;
use crate::policy::Chunk;
use crate::protocols::observation::ValidatedRequest;
use crate::serve::card::ServedSpec;
use crate::serve::client::ClientEpisode;
use crate::serve::close::{CloseReason, gone};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;
use crate::serve::server::ServerState;

/// One end of a connection, which knows how messages are framed.
pub trait Peer {
    /// Returns the connection itself.
    fn stream(&self) -> &TcpStream;

    /// Waits for the next message; `None` if the client has disconnected.
    async fn hear(&mut self) -> Result<Option<Received>, CloseReason>;

    /// Sends the answer to the last message.
    async fn send(&mut self, message: Message) -> Result<(), CloseReason>;

    /// Tells the client that an error ends the connection.
    async fn close(&mut self) -> Result<(), CloseReason>;
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
        self.server.stats.asked(endpoint);
        self.server.connections().known(self.id);
    }

    /// Asks the policy for the chunks of the next inference.
    ///
    /// # Errors
    /// As [`ClientEpisode::ask`].
    pub async fn infer(&mut self, asked: ValidatedRequest) -> Result<Vec<Chunk>, RequestError> {
        self.episode.ask(&self.server, asked).await
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
                server.stats.answered(asked.elapsed(), outcome, now());
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
