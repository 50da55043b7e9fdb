//! Serves HTTP connections: the health check, the metrics, and the upgrade to a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use jobs::serve_args::Protocol;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::protocols::vla_eval;
use crate::serve::close::CloseReason;
use crate::serve::connections::ConnectionId;
use crate::serve::server::ServerState;
use crate::serve::stats::Counted;
use crate::serve::websocket;

/// Maximum size of a request head in bytes.
const LONGEST_HEAD: usize = 8192;

/// Maximum number of header fields in a request.
const MOST_FIELDS: usize = 64;

/// Time limit for a whole request head, and for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The parts of a request that are used.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RequestHead {
    /// True if the method is GET.
    pub is_get: bool,
    /// Path without the query.
    pub path: String,
    /// `Sec-WebSocket-Key`, if the client asks for an upgrade to a WebSocket.
    pub key: Option<String>,
    /// `Authorization` header.
    pub authorization: Option<String>,
    /// Size of the head in bytes.
    pub length: usize,
}

/// Answers one request, or serves a WebSocket until it is closed.
///
/// # Errors
/// Returns the reason if the server closed the connection.
pub(super) async fn serve(
    mut stream: TcpStream,
    server: Arc<ServerState>,
    id: ConnectionId,
) -> Result<(), CloseReason> {
    let mut buffer = BytesMut::with_capacity(1024);
    let Some(head) = timeout(PATIENCE, read_head(&mut stream, &mut buffer))
        .await
        .map_err(|_| CloseReason::slow())??
    else {
        return Ok(());
    };
    let rest = buffer.split_off(head.length);
    if let Some(response) = respond(&head, &server) {
        return write(&mut stream, response.to_text().as_bytes()).await;
    }
    // `respond` has let it in.
    server.connections().authenticated(id);
    let accept = derive_accept_key(head.key.as_deref().unwrap_or_default().as_bytes());
    let upgrade = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    write(&mut stream, upgrade.as_bytes()).await?;
    let is_silent = head.path == vla_eval::PATH;
    websocket::serve(stream, rest.to_vec(), server, id, is_silent).await
}

/// A response to a request that is not upgraded.
struct HttpResponse {
    status: &'static str,
    content_type: &'static str,
    body: String,
}

impl HttpResponse {
    fn text(status: &'static str, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.to_owned(),
        }
    }

    fn to_text(&self) -> String {
        let Self {
            status,
            content_type,
            body,
        } = self;
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

/// Returns the response to a request; `None` if it is upgraded to a WebSocket.
fn respond(head: &RequestHead, server: &ServerState) -> Option<HttpResponse> {
    let text = HttpResponse::text;
    Some(match (&*head.path, &head.key) {
        _ if !head.is_get => text("405 Method Not Allowed", "expected GET\n"),
        ("/healthz" | "/health", None) if server.is_ending() => {
            text("503 Service Unavailable", "stopping\n")
        }
        ("/healthz" | "/health", None) => text("200 OK", "OK\n"),
        ("/metrics", None) => {
            let connected = server.connections().count();
            HttpResponse {
                status: "200 OK",
                content_type: "text/plain; version=0.0.4; charset=utf-8",
                body: server.stats.render(connected),
            }
        }
        (_, Some(_)) if server.rules.protocol == Protocol::Zmq => {
            text("404 Not Found", "no websockets here\n")
        }
        (_, Some(_)) if server.is_ending() => text("503 Service Unavailable", "stopping\n"),
        (_, Some(_)) if !server.lets_in(token(head).as_deref()) => {
            server.stats.count(Counted::Unauthorized);
            text("401 Unauthorized", "expected Authorization: Api-Key …\n")
        }
        (_, Some(_)) => return None,
        _ => text(
            "404 Not Found",
            "/healthz and /metrics are here, and websockets everywhere\n",
        ),
    })
}

async fn write(stream: &mut TcpStream, bytes: &[u8]) -> Result<(), CloseReason> {
    timeout(PATIENCE, stream.write_all(bytes))
        .await
        .map_err(|_| CloseReason::slow())?
        .map_err(CloseReason::Io)
}

async fn read_head(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
) -> Result<Option<RequestHead>, CloseReason> {
    loop {
        if let Some(head) = parse(buffer)? {
            return Ok(Some(head));
        }
        if buffer.len() >= LONGEST_HEAD {
            return Err(no_request("its head is too long"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn no_request(reason: &str) -> CloseReason {
    CloseReason::Violation(format!("not an HTTP request: {reason}"))
}

/// Parses the request head at the start of `bytes`; returns `None` if it is incomplete.
///
/// # Errors
/// Returns a [`CloseReason`] if this is not an HTTP request.
pub fn parse(bytes: &[u8]) -> Result<Option<RequestHead>, CloseReason> {
    let mut fields = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    let status = request
        .parse(bytes)
        .map_err(|_| no_request("it cannot be read"))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let field = |name: &str| {
        let found = request
            .headers
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name))?;
        String::from_utf8(found.value.to_vec()).ok()
    };
    let is_upgrade = field("upgrade").is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    let path = request
        .path
        .unwrap_or_default()
        .split('?')
        .next()
        .unwrap_or_default();
    Ok(Some(RequestHead {
        is_get: request.method == Some("GET"),
        path: path.to_owned(),
        key: field("sec-websocket-key").filter(|_| is_upgrade),
        authorization: field("authorization"),
        length,
    }))
}

/// Returns the token: what follows `Api-Key` (openpi) or `Bearer`, or the password of `Basic`, which
/// clients send that have it in their address (`ws://any:token@host`).
fn token(head: &RequestHead) -> Option<String> {
    let (scheme, given) = head.authorization.as_deref()?.split_once(' ')?;
    let given = given.trim();
    match &*scheme.to_ascii_lowercase() {
        "api-key" | "bearer" => Some(given.to_owned()),
        "basic" => {
            let pair = String::from_utf8(STANDARD.decode(given).ok()?).ok()?;
            pair.split_once(':').map(|(_, token)| token.to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
