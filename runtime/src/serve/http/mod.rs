//! Serves HTTP connections: the health check, the metrics, and the upgrade to a WebSocket.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::protocols::vla_eval;
use crate::serve::server::ServerState;
use crate::serve::session::{CloseReason, Session, within};
use crate::serve::stats::Counted;
use crate::serve::websocket;

/// Maximum size of a request head in bytes.
const LONGEST_HEAD: usize = 8192;

/// Maximum number of header fields in a request.
const MOST_FIELDS: usize = 64;

/// What the type of metrics says besides the character set.
pub(crate) const METRICS: &str = "version=0.0.4; ";

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
pub(super) async fn serve(mut stream: TcpStream, session: Session) -> Result<(), CloseReason> {
    let mut buffer = BytesMut::with_capacity(1024);
    let head = read_head(&mut stream, &mut buffer);
    let Some(head) = within(PATIENCE, head).await? else {
        return Ok(());
    };
    let rest = buffer.split_off(head.length);
    if let Some(response) = respond(&head, &session.server) {
        return within(PATIENCE, stream.write_all(response.as_bytes())).await;
    }
    // `respond` has let it in.
    session.server.connections().authenticated(session.id);
    let accept = derive_accept_key(head.key.as_deref().unwrap_or_default().as_bytes());
    let upgrade = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    within(PATIENCE, stream.write_all(upgrade.as_bytes())).await?;
    let is_silent = head.path == vla_eval::PATH;
    websocket::serve(stream, rest.to_vec(), session, is_silent).await
}

/// Returns the response to a request; `None` if it is upgraded to a WebSocket.
fn respond(head: &RequestHead, server: &ServerState) -> Option<String> {
    let is_health = matches!(&*head.path, "/healthz" | "/health");
    let upgrades = head.key.is_some();
    let (status, body) = if !head.is_get {
        ("405 Method Not Allowed", "expected GET\n")
    } else if head.path == "/metrics" && !upgrades {
        let connected = server.connections().count();
        let metrics = server.stats().render(connected);
        return Some(response("200 OK", METRICS, &metrics));
    } else if (upgrades || is_health) && server.is_ending() {
        ("503 Service Unavailable", "stopping\n")
    } else if upgrades && server.lets_in(token(head).as_deref()) {
        return None;
    } else if upgrades {
        server.stats().count(Counted::Unauthorized);
        let wanted = "expected Authorization: Api-Key …\n";
        ("401 Unauthorized", wanted)
    } else if is_health {
        ("200 OK", "OK\n")
    } else {
        let known = "/healthz and /metrics are here, and websockets everywhere\n";
        ("404 Not Found", known)
    };
    Some(response(status, "", body))
}

/// Returns a response that ends the connection. `version` is that of the metrics' format, if these
/// are the body.
pub(crate) fn response(status: &str, version: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; {version}charset=utf-8\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Reads the head of a request; `None` if the client closes the connection before its end.
///
/// # Errors
/// Returns why the connection is closed: it broke, or this is no HTTP request.
pub(crate) async fn read_head(
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
    let status = request.parse(bytes);
    let status = status.map_err(|_| no_request("it cannot be read"))?;
    let httparse::Status::Complete(length) = status else {
        return Ok(None);
    };
    let field = |name: &str| {
        let mut fields = request.headers.iter();
        let found = fields.find(|field| field.name.eq_ignore_ascii_case(name))?;
        String::from_utf8(found.value.to_vec()).ok()
    };
    let is_upgrade = field("upgrade").is_some_and(|to| to.eq_ignore_ascii_case("websocket"));
    let path = request.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    Ok(Some(RequestHead {
        is_get: request.method == Some("GET"),
        path: path.to_owned(),
        key: field("sec-websocket-key").filter(|_| is_upgrade),
        authorization: field("authorization"),
        length,
    }))
}

/// Returns the token: what follows `Api-Key` (openpi) or `Bearer`, or the password of `Basic`,
/// which clients send that have it in their address (`ws://any:token@host`).
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
