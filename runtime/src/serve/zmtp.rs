//! Serves one ZeroMQ client as a REP socket, from its greeting to the end of the connection. The
//! byte format is in [`wire::zmtp`].
//!
//! This is an implementation of its own because the REP socket of a library does not suit a server:
//! it answers one client after the other, so that requests could not be batched, and the crate
//! `zeromq` allocates whatever length a frame announces (src/codec/zmq_codec.rs). Only a small part
//! of the protocol is needed.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout_at;

use crate::clock::now;
use crate::serve::close::{CloseReason, gone};
use crate::serve::connections::ConnectionId;
use crate::serve::gr00t::Gr00tClient;
use crate::serve::server::{AfterAnswer, ServerState};
use wire::zmtp::{Heard, Multipart, Reader, Socket, answer_head, greeting, pong};

/// Time limit for the greeting, and from the first to the last byte of a message.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time limit from the first to the last byte of a message of a client that has not sent the token.
const STRANGERS_PATIENCE: Duration = Duration::from_secs(5);

/// Bytes that are read before the task yields to other connections, and the most that is allocated
/// at once for an announced length: some 50 µs of copying.
const SLICE: usize = 256 << 10;

/// Serves a client until it disconnects.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub async fn serve(
    stream: TcpStream,
    server: Arc<ServerState>,
    id: ConnectionId,
) -> Result<(), CloseReason> {
    let mut client = Gr00tClient::new(Arc::clone(&server), id);
    let is_authenticated = client.is_authenticated();
    let most_bytes = if is_authenticated {
        server.most_bytes
    } else {
        server.unauthenticated_bytes
    };
    let mut peer = ZmtpPeer {
        reader: Reader::new(most_bytes),
        stream,
        buffer: BytesMut::new(),
        server,
        id,
        is_authenticated,
        most_bytes,
    };
    peer.write(&greeting()).await?;
    let until = now() + PATIENCE;
    let Some(Heard::Greeting) = peer.hear(Some(until)).await? else {
        return Ok(());
    };
    peer.write(&Socket::Rep.ready()).await?;
    match peer.hear(Some(until)).await? {
        Some(Heard::Command(name, properties)) => Socket::Rep.check_ready(&name, &properties)?,
        _ => return Ok(()),
    }
    while let Some(heard) = peer.hear(None).await? {
        match heard {
            Heard::Request(request) => peer.answer(&mut client, request).await?,
            // PING has a time to live of two bytes before its context.
            Heard::Command(name, data) if name == "PING" => {
                peer.write(&pong(data.get(2..).unwrap_or_default())).await?;
            }
            Heard::Command(..) | Heard::Greeting => {}
        }
    }
    Ok(())
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
}

impl ZmtpPeer {
    async fn answer(
        &mut self,
        client: &mut Gr00tClient,
        Multipart { envelope, body }: Multipart,
    ) -> Result<(), CloseReason> {
        let asked = now();
        let bytes: usize = body.iter().chain(&envelope).map(Bytes::len).sum();
        self.server.connections().asked(self.id, asked);
        self.server.hold(self.id, bytes);
        let then = tokio::select! {
            then = client.answer(body) => then,
            () = gone(&self.stream) => return Ok(()),
        };
        self.is_authenticated = client.is_authenticated();
        self.most_bytes = match self.is_authenticated {
            true => self.server.most_bytes,
            false => self.most_bytes.saturating_sub(bytes),
        };
        self.reader.set_most_bytes(self.most_bytes);
        let (AfterAnswer::GoOn(body) | AfterAnswer::End(body)) = &then;
        let mut bytes = answer_head(&envelope, body.len());
        bytes.extend_from_slice(body);
        self.write(&bytes).await?;
        self.server
            .stats
            .answered(asked.elapsed(), is_error(body), now());
        self.server.connections().answered(self.id, now());
        if let AfterAnswer::End(_) = then {
            self.server.end("a client asked for it");
        }
        Ok(())
    }

    /// Returns what the peer sends next, or `None` if it has disconnected. Without `until` the peer
    /// may be silent between messages, but not in the middle of one.
    async fn hear(&mut self, mut until: Option<Instant>) -> Result<Option<Heard>, CloseReason> {
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
                until = Some(
                    now()
                        + if self.is_authenticated {
                            PATIENCE
                        } else {
                            STRANGERS_PATIENCE
                        },
                );
            }
            let missing = self
                .reader
                .wants(&self.buffer)
                .saturating_sub(self.buffer.len());
            self.buffer.reserve(missing.clamp(4096, SLICE));
            let mut slice = (&mut self.stream).take(SLICE as u64);
            let read = slice.read_buf(&mut self.buffer);
            let count = match until {
                Some(until) => timeout_at(until.into(), read)
                    .await
                    .map_err(|_| CloseReason::Slow)??,
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
        let written = timeout_at((now() + PATIENCE).into(), self.stream.write_all(bytes)).await;
        written
            .map_err(|_| CloseReason::Slow)?
            .map_err(|err: io::Error| err.into())
    }
}

/// Returns whether an answer is `{"error": …}`.
fn is_error(body: &[u8]) -> bool {
    body.starts_with(b"\x81\xa5error")
}
