//! One connection to a policy server: ZeroMQ's REQ socket, or a websocket with or without TLS.
//!
//! The REQ socket is our own implementation over [`zmtp`]. libzmq's reconnects in the background
//! and holds requests meanwhile, which does not suit a caller that has to report how long a server
//! was unreachable.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{timeout, timeout_at};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderValue, header};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};
use tokio_tungstenite::{Connector, MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use wire::zmtp::{self, Heard, Reader, Socket};

use crate::clock::now;
use crate::policy::remote::explain::{self, end_of, plain};
use crate::policy::remote::{Lifeline, PolicyServer};
use crate::protocols::{CallError, Exchange, Transport};

/// Maximum size of an answer in bytes; a chunk of actions has some kilobytes.
const LONGEST_ANSWER: usize = 256 << 20;

/// Number of bytes for which there is room before each read.
const BLOCK: usize = 1 << 16;

/// Maximum time for a step of what is said at the end.
const LONGEST_FAREWELL: Duration = Duration::from_millis(500);

/// A connection whose every step has a deadline, and ends with the lifeline.
pub(super) struct Link {
    stream: Stream,
    lifeline: Lifeline,
    timeout: Duration,
    deadline: Instant,
}

enum Stream {
    Zmtp(Req),
    Websocket(Box<WebSocketStream<MaybeTlsStream<TcpStream>>>),
}

impl Link {
    /// Connects, and makes the handshakes.
    pub(super) async fn open(
        server: &PolicyServer,
        lifeline: &Lifeline,
        transport: Transport,
    ) -> Result<Self, CallError> {
        let deadline = now() + server.timeout;
        let opened = async {
            let tcp = connect(server, deadline).await?;
            match transport {
                Transport::Zmtp => Req::open(tcp).await.map(Stream::Zmtp),
                Transport::Websocket(scheme) => websocket(tcp, server, scheme).await,
            }
        };
        let stream = within(deadline, server.timeout, lifeline, opened).await?;
        Ok(Self {
            stream,
            lifeline: lifeline.clone(),
            timeout: server.timeout,
            deadline,
        })
    }

    /// Makes every step from now on a short one, for what is said at the end: by then, the lifeline
    /// may be cut.
    pub(super) fn hurry(&mut self) {
        self.timeout = self.timeout.min(LONGEST_FAREWELL);
        self.lifeline = Lifeline::alone();
    }

    /// Closes the connection on purpose.
    pub(super) async fn close(mut self) {
        if let Stream::Websocket(websocket) = &mut self.stream {
            let frame = CloseFrame {
                code: CloseCode::Normal,
                reason: Utf8Bytes::default(),
            };
            // A server that is gone need not hear it.
            timeout(LONGEST_FAREWELL, websocket.close(Some(frame)))
                .await
                .ok();
        }
    }
}

impl Exchange for Link {
    async fn send(&mut self, message: Bytes) -> Result<(), CallError> {
        self.deadline = now() + self.timeout;
        let sent = async {
            match &mut self.stream {
                Stream::Zmtp(req) => {
                    let head = zmtp::answer_head(&[], message.len());
                    req.tcp.write_all(&head).await?;
                    req.tcp.write_all(&message).await?;
                }
                Stream::Websocket(websocket) => websocket.send(Message::Binary(message)).await?,
            }
            Ok(())
        };
        within(self.deadline, self.timeout, &self.lifeline, sent).await
    }

    async fn receive(&mut self) -> Result<Bytes, CallError> {
        self.deadline = now() + self.timeout;
        self.receive_more().await
    }

    async fn receive_more(&mut self) -> Result<Bytes, CallError> {
        let received = async {
            match &mut self.stream {
                Stream::Zmtp(req) => req.answer().await,
                Stream::Websocket(websocket) => next_message(websocket).await,
            }
        };
        within(self.deadline, self.timeout, &self.lifeline, received).await
    }
}

/// Waits for a step until its deadline, or until the lifeline is cut.
async fn within<T>(
    deadline: Instant,
    patience: Duration,
    lifeline: &Lifeline,
    step: impl Future<Output = Result<T, CallError>>,
) -> Result<T, CallError> {
    tokio::select! {
        biased;
        () = lifeline.until_cut() => Err(CallError::Cut),
        done = timeout_at(deadline.into(), step) => done.unwrap_or_else(|_| {
            Err(CallError::Away(format!("no answer within {} s", patience.as_secs_f64())))
        }),
    }
}

/// Connects to the first of the host's addresses that answers. Each has its share of what is left
/// of the timeout.
async fn connect(server: &PolicyServer, deadline: Instant) -> Result<TcpStream, CallError> {
    let addresses = addresses(server, deadline)
        .await
        .map_err(|reason| CallError::Away(format!("no address of {}{reason}", server.host)))?;
    let mut reason = String::new();
    for (nth, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(now());
        let share = left / u32::try_from(addresses.len() - nth).unwrap_or(u32::MAX);
        match connect_to(*address, share).await {
            Ok(tcp) => return Ok(tcp),
            Err(err) => reason = plain(&err),
        }
    }
    Err(CallError::Away(reason))
}

/// Returns the host's addresses, of which there is at least one, or why there are none. The
/// system's resolver has no deadline and cannot be interrupted, so it runs in a thread that nobody
/// joins.
async fn addresses(server: &PolicyServer, deadline: Instant) -> Result<Vec<SocketAddr>, String> {
    let began = now();
    let (tell, answer) = oneshot::channel();
    let (lookup, host, port) = (server.lookup, server.host.clone(), server.port);
    let thread = std::thread::Builder::new().name("resolver".to_owned());
    // Nobody listens any more if it has taken too long.
    let begun = thread.spawn(move || tell.send(lookup(&host, port)).ok());
    begun.map_err(|err| format!(": {err}"))?;
    match timeout_at(deadline.into(), answer).await {
        Ok(Ok(Ok(addresses))) if !addresses.is_empty() => Ok(addresses),
        Ok(Ok(Err(err))) => Err(format!(": {err}")),
        Ok(_) => Err(String::new()),
        Err(_) => {
            let patience = deadline.saturating_duration_since(began).as_secs_f64();
            Err(format!(" within {patience:.1} s"))
        }
    }
}

async fn connect_to(address: SocketAddr, share: Duration) -> io::Result<TcpStream> {
    // A little less than the whole, so that the reason is told before the deadline.
    let tcp = timeout(share.mul_f64(0.9), TcpStream::connect(address)).await??;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Makes the handshakes of TLS and websocket. The token is sent in the header `Authorization`,
/// behind the word `scheme`.
async fn websocket(
    tcp: TcpStream,
    server: &PolicyServer,
    scheme: &str,
) -> Result<Stream, CallError> {
    let request = request(server, scheme).map_err(|reason| {
        CallError::Wrong(format!("no request for a websocket can be made: {reason}"))
    })?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(LONGEST_ANSWER))
        .max_frame_size(Some(LONGEST_ANSWER));
    let connector = match &server.tls {
        Some(trust) => Connector::Rustls(Arc::clone(trust)),
        None => Connector::Plain,
    };
    let shaken = client_async_tls_with_config(request, tcp, Some(config), Some(connector)).await;
    let (websocket, _) = shaken.map_err(|err| explain::refusal(err, server))?;
    Ok(Stream::Websocket(Box::new(websocket)))
}

/// Returns the request that starts the handshake, or why there is none.
fn request(server: &PolicyServer, scheme: &str) -> Result<Request, String> {
    let mut request = server
        .url()
        .into_client_request()
        .map_err(|err| err.to_string())?;
    if let Some(token) = &server.token {
        let value = HeaderValue::from_str(&format!("{scheme} {}", token.0))
            .map_err(|_| "the token has characters that no header may have".to_owned())?;
        request.headers_mut().insert(header::AUTHORIZATION, value);
    }
    Ok(request)
}

/// Returns the next binary message. A text is an error, because servers explain errors with it.
async fn next_message(
    websocket: &mut WebSocketStream<MaybeTlsStream<TcpStream>>,
) -> Result<Bytes, CallError> {
    loop {
        match websocket.next().await {
            None => return Err(CallError::Away("it closed the connection".to_owned())),
            Some(Err(err)) => return Err(err.into()),
            Some(Ok(Message::Binary(bytes))) => return Ok(bytes),
            // On an error, openpi's reference sends the traceback of its policy as text and closes
            // the connection.
            Some(Ok(Message::Text(text))) => {
                let said = format!("it says: {}", end_of(text.as_str()));
                return Err(CallError::Wrong(said));
            }
            Some(Ok(Message::Close(frame))) => {
                let why = frame
                    .map(|frame| format!(" ({} {})", u16::from(frame.code), frame.reason.as_str()));
                let why = why.unwrap_or_default();
                return Err(CallError::Away(format!("it closed the connection{why}")));
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
        }
    }
}

/// A connection to a REP or ROUTER socket.
struct Req {
    tcp: TcpStream,
    reader: Reader,
    buffer: BytesMut,
}

impl Req {
    async fn open(tcp: TcpStream) -> Result<Self, CallError> {
        let mut req = Self {
            tcp,
            reader: Reader::new(LONGEST_ANSWER),
            buffer: BytesMut::new(),
        };
        req.tcp.write_all(&zmtp::greeting()).await?;
        loop {
            match req.next().await? {
                Heard::Greeting => req.tcp.write_all(&Socket::Req.ready()).await?,
                Heard::Command(name, properties) => {
                    let ready = Socket::Req.check_ready(&name, &properties);
                    let wrong = |err| CallError::Wrong(format!("it is {err}"));
                    return ready.map(|()| req).map_err(wrong);
                }
                Heard::Request(_) => {
                    let reason = "it answers before it was asked";
                    return Err(CallError::Wrong(reason.to_owned()));
                }
            }
        }
    }

    async fn answer(&mut self) -> Result<Bytes, CallError> {
        loop {
            match self.next().await? {
                // A PING starts with a time-to-live of two bytes, followed by the context that the
                // PONG has to repeat.
                Heard::Command(name, data) if &name[..] == b"PING" => {
                    let pong = zmtp::pong(data.get(2..).unwrap_or_default());
                    self.tcp.write_all(&pong).await?;
                }
                Heard::Command(..) | Heard::Greeting => {}
                Heard::Request(answer) => {
                    let only = <[Bytes; 1]>::try_from(answer.body).map(|[only]| only);
                    return only.map_err(|parts| {
                        let parts = parts.len();
                        CallError::Wrong(format!("an answer of {parts} parts, expected 1"))
                    });
                }
            }
        }
    }

    async fn next(&mut self) -> Result<Heard, CallError> {
        loop {
            let heard = self.reader.next(&mut self.buffer);
            let heard = heard.map_err(|err| {
                CallError::Wrong(format!("it does not speak ZeroMQ for policies: {err}"))
            })?;
            if let Some(heard) = heard {
                return Ok(heard);
            }
            self.buffer.reserve(BLOCK);
            if self.tcp.read_buf(&mut self.buffer).await? == 0 {
                return Err(CallError::Away("it closed the connection".to_owned()));
            }
        }
    }
}
