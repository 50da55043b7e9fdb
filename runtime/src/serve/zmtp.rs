//! The connections of ZeroMQ clients: the server is a REP socket for each. The byte format is in
//! [`wire::zmtp`].
//!
//! This is an implementation of its own because the REP socket of a library does not suit a server:
//! it answers one client after the other, so that requests could not be batched, and the crate
//! `zeromq` allocates whatever length a frame announces (src/codec/zmq_codec.rs). Only a small part
//! of the protocol is needed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use jobs::serve_args::Arrays;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_tungstenite::tungstenite::Message;

use crate::clock::now;
use crate::protocols::gr00t::Gr00tServer;
use crate::serve::connections::ConnectionId;
use crate::serve::request::RequestError;
use crate::serve::server::ServerState;
use crate::serve::session::{CloseReason, Peer, Received, Session, slow, within};
use wire::Dialect;
use wire::zmtp::{Heard, Multipart, Reader, Socket, answer_head, greeting, pong};

/// Time limit for the greeting, and from the first to the last byte of a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit from the first to the last byte of a message of a client that has not sent the token.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that a client may send in total before it has sent the token.
const STRANGERS_BYTES: usize = 16 << 20;

/// Bytes that are read before the task yields to other connections, and the most that is allocated
/// at once for an announced length: some 50 µs of copying.
const SLICE: usize = 256 << 10;

/// Serves a client until it disconnects.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub async fn serve(stream: TcpStream, session: Session) -> Result<(), CloseReason> {
    let rules = &session.server.rules;
    let most_bytes = STRANGERS_BYTES.min(rules.max_message << 20);
    let mut peer = ZmtpPeer {
        reader: Reader::new(most_bytes),
        stream,
        buffer: BytesMut::new(),
        most_bytes,
        server: Arc::clone(&session.server),
        id: session.id,
        is_authenticated: false,
        envelope: Vec::new(),
    };
    peer.write(&greeting()).await?;
    let until = now() + PATIENCE;
    let Some(Heard::Greeting) = peer.next(Some(until)).await? else {
        return Ok(());
    };
    peer.write(&Socket::Rep.ready()).await?;
    match peer.next(Some(until)).await? {
        Some(Heard::Command(name, properties)) => Socket::Rep.check_ready(&name, &properties)?,
        _ => return Ok(()),
    }
    let codec = Gr00tServer::new(match rules.arrays {
        Arrays::Kind => Dialect::Kind,
        Arrays::Npy => Dialect::Npy,
    });
    session.serve(peer, codec, None).await
}

struct ZmtpPeer {
    stream: TcpStream,
    reader: Reader,
    buffer: BytesMut,
    server: Arc<ServerState>,
    id: ConnectionId,
    /// True if the client has sent the token, or none is needed.
    is_authenticated: bool,
    /// Bytes that it may still send: in one message, or in total until it has sent the token.
    most_bytes: usize,
    /// That of the message that is answered next.
    envelope: Vec<Bytes>,
}

impl Peer for ZmtpPeer {
    fn stream(&self) -> &TcpStream {
        &self.stream
    }

    async fn hear(&mut self) -> Result<Option<Received>, CloseReason> {
        self.is_authenticated = self.server.connections().is_authenticated(self.id);
        if self.is_authenticated {
            self.most_bytes = self.server.rules.max_message << 20;
        }
        self.reader.set_most_bytes(self.most_bytes);
        while let Some(heard) = self.next(None).await? {
            match heard {
                Heard::Request(Multipart { envelope, body }) => {
                    let bytes = body.iter().chain(&envelope).map(Bytes::len).sum();
                    self.most_bytes = self.most_bytes.saturating_sub(bytes);
                    self.envelope = envelope;
                    let body = <[Bytes; 1]>::try_from(body).map(|[body]| body);
                    let body = body.map_err(|parts| {
                        let found = parts.len();
                        RequestError::new(format_args!(
                            "found a message of {found} parts, expected one part"
                        ))
                    });
                    return Ok(Some(Received { body, bytes }));
                }
                // PING has a time to live of two bytes before its context.
                Heard::Command(name, data) if name == "PING" => {
                    self.write(&pong(data.get(2..).unwrap_or_default())).await?;
                }
                Heard::Command(..) | Heard::Greeting => {}
            }
        }
        Ok(None)
    }

    async fn send(&mut self, message: Message) -> Result<(), CloseReason> {
        let body = message.into_data();
        let mut bytes = answer_head(&std::mem::take(&mut self.envelope), body.len());
        bytes.extend_from_slice(&body);
        self.write(&bytes).await
    }
}

impl ZmtpPeer {
    /// Returns what the peer sends next, or `None` if it has disconnected. Without `until` the peer
    /// may be silent between messages, but not in the middle of one.
    async fn next(&mut self, mut until: Option<Instant>) -> Result<Option<Heard>, CloseReason> {
        loop {
            if let Some(heard) = self.reader.next(&mut self.buffer)? {
                if self.buffer.is_empty() {
                    // Free the memory together with the message.
                    self.buffer = BytesMut::new();
                }
                return Ok(Some(heard));
            }
            let held = self.buffer.len() + self.reader.held();
            self.server.hold(self.id, held);
            if held > 0 && until.is_none() {
                let patience = match self.is_authenticated {
                    true => PATIENCE,
                    false => STRANGERS_PATIENCE,
                };
                until = Some(now() + patience);
            }
            let wanted = self.reader.wants(&self.buffer);
            let missing = wanted.saturating_sub(self.buffer.len());
            self.buffer.reserve(missing.clamp(4096, SLICE));
            let mut slice = (&mut self.stream).take(SLICE as u64);
            let read = slice.read_buf(&mut self.buffer);
            let count = match until {
                Some(until) => timeout_at(until.into(), read).await.map_err(|_| slow())??,
                None => read.await?,
            };
            match count {
                0 => return Ok(None),
                SLICE.. => tokio::task::yield_now().await,
                _ => {}
            }
        }
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<(), CloseReason> {
        within(PATIENCE, self.stream.write_all(bytes)).await
    }
}
