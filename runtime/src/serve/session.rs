//! The session of one client, the same for every protocol: it hears a message, answers it, and
//! watches meanwhile for the end of the connection.
//!
//! ```text
//! bytes ◄─► Peer (zmtp, websocket) ─ message ─► Client (gr00t, openpi, vla_eval) ─► policy
//!                 ▲────────────── Reply ◄──────────────┘
//! ```

use std::sync::Arc;

use bytes::Bytes;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::clock::now;
use crate::serve::close::{CloseReason, gone};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::gr00t::Gr00tClient;
use crate::serve::openpi::OpenpiClient;
use crate::serve::server::ServerState;
use crate::serve::vla_eval::{self, VlaEvalClient};

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
    /// Its parts; ZeroMQ's messages may have any number.
    pub parts: Vec<Bytes>,
    /// Bytes that it holds, with its envelope.
    pub bytes: usize,
}

/// What follows a message.
#[derive(Debug)]
pub struct Reply {
    /// What is sent, if the message needs an answer.
    pub message: Option<Message>,
    /// How the request ended, for statistics; `None` for a message that asks for nothing.
    pub outcome: Option<Result<(), RequestError>>,
    /// What happens after the answer.
    pub then: Then,
}

/// What happens after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The client may send more.
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
            ..Self::nothing()
        }
    }

    /// Sends nothing.
    pub fn nothing() -> Self {
        Self {
            message: None,
            outcome: None,
            then: Then::GoOn,
        }
    }
}

/// What a client speaks, with its state.
#[derive(Debug)]
pub enum Client {
    /// GR00T's endpoints.
    Gr00t(Gr00tClient),
    /// A websocket that was greeted for both of its protocols, and has said nothing.
    Greeted(Arc<ServerState>, ConnectionId),
    /// openpi's protocol.
    Openpi(OpenpiClient),
    /// vla-eval's protocol.
    VlaEval(VlaEvalClient),
}

impl Client {
    async fn answer(&mut self, parts: Vec<Bytes>) -> Reply {
        if let Self::Gr00t(client) = self {
            return client.answer(parts).await;
        }
        // A message of a websocket has one part.
        let body = parts.into_iter().next().unwrap_or_default();
        if let Self::Greeted(server, id) = self {
            let server = Arc::clone(server);
            *self = if vla_eval::is_hello(&body) {
                Self::VlaEval(VlaEvalClient::new(server, *id, true))
            } else {
                Self::Openpi(OpenpiClient::new(server, *id))
            };
        }
        match self {
            Self::Openpi(client) => match client.answer(body).await {
                Ok(answer) => Reply::to_request(answer, Ok(())),
                Err(err) => Reply {
                    message: Some(Message::text(err.to_string())),
                    outcome: Some(Err(err)),
                    then: Then::Close,
                },
            },
            Self::VlaEval(client) => client.answer(body).await,
            Self::Gr00t(_) | Self::Greeted(..) => Reply::nothing(),
        }
    }

    /// Returns how many bytes of earlier messages are kept.
    fn kept_bytes(&self) -> usize {
        match self {
            Self::VlaEval(client) => client.kept_bytes(),
            _ => 0,
        }
    }
}

/// Serves a client until it disconnects.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub async fn serve(
    mut peer: impl Peer,
    mut client: Client,
    server: &ServerState,
    id: ConnectionId,
) -> Result<(), CloseReason> {
    while let Some(Received { parts, bytes }) = peer.hear().await? {
        let asked = now();
        server.connections().asked(id, asked);
        server.hold(id, bytes);
        let reply = tokio::select! {
            reply = client.answer(parts) => reply,
            () = gone(peer.stream()) => return Ok(()),
        };
        if let Some(message) = reply.message {
            peer.send(message).await?;
        }
        if let Some(outcome) = &reply.outcome {
            server.stats.answered(asked.elapsed(), outcome, now());
        }
        server.connections().answered(id, now());
        server.keep(id, client.kept_bytes());
        match reply.then {
            Then::GoOn => {}
            Then::Close => return peer.close().await,
            Then::Stop => server.end("a client asked for it"),
        }
    }
    Ok(())
}
