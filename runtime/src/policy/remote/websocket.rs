//! One websocket connection to a policy server, which answers each binary message with one message.
//! As a [`ServerConnection`] it is one to an openpi server, which first sends its metadata.

use bytes::Bytes;
use tungstenite::client::IntoClientRequest;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::client::Request;
use tungstenite::http::{HeaderValue, StatusCode, header};
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tungstenite::{Error, HandshakeError, Message, Utf8Bytes, WebSocket};

use crate::policy::remote::tls::reason_of;
use crate::policy::remote::{
    CallError, LONGEST_ANSWER, Lifeline, PolicyServer, ServerConnection, ServerStream,
};

/// Maximum number of characters of a server's traceback that are shown, from its end.
const LONGEST_WORDS: usize = 2000;

/// A connection over `ws://` or `wss://`.
#[derive(Debug)]
pub struct WebsocketConnection(WebSocket<ServerStream>);

impl WebsocketConnection {
    /// Connects, and makes the handshakes of TLS and websocket. The token is sent in the header
    /// `Authorization`, behind the word `scheme`.
    ///
    /// # Errors
    /// Returns any kind of [`CallError`].
    pub fn connect(
        server: &PolicyServer,
        lifeline: &Lifeline,
        scheme: &str,
    ) -> Result<Self, CallError> {
        let request = request(server, scheme).map_err(|reason| {
            CallError::Wrong(format!("no request for a websocket can be made: {reason}"))
        })?;
        let stream = ServerStream::connect(server, lifeline)?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(LONGEST_ANSWER))
            .max_frame_size(Some(LONGEST_ANSWER));
        match tungstenite::client::client_with_config(request, stream, Some(config)) {
            Ok((websocket, _)) => Ok(Self(websocket)),
            Err(HandshakeError::Failure(err)) => Err(refusal(err, lifeline, server)),
            Err(HandshakeError::Interrupted(_)) => {
                Err(CallError::Away("no handshake in time".to_owned()))
            }
        }
    }

    fn trouble(&self, err: Error) -> CallError {
        trouble(self.0.get_ref(), err)
    }

    /// Returns the next binary message; the timeout runs since the last message that was sent or
    /// waited for with [`ServerConnection::receive`]. A text is an error, because servers explain
    /// errors with it.
    ///
    /// # Errors
    /// Returns any kind of [`CallError`].
    pub fn next_message(&mut self) -> Result<Bytes, CallError> {
        loop {
            match self.0.read().map_err(|err| self.trouble(err))? {
                Message::Binary(bytes) => return Ok(bytes),
                // On an error, the reference sends the traceback of its policy as text and closes
                // the connection.
                Message::Text(text) => {
                    return Err(CallError::Wrong(format!(
                        "it says: {}",
                        end_of(text.as_str())
                    )));
                }
                Message::Close(frame) => {
                    let why = frame.map(|frame| {
                        format!(" ({} {})", u16::from(frame.code), frame.reason.as_str())
                    });
                    return Err(CallError::Away(format!(
                        "it closed the connection{}",
                        why.unwrap_or_default()
                    )));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

impl Drop for WebsocketConnection {
    /// Says that the connection ends on purpose, which servers would otherwise log as an error.
    fn drop(&mut self) {
        self.hurry();
        let frame = CloseFrame {
            code: CloseCode::Normal,
            reason: Utf8Bytes::default(),
        };
        // A server that is gone need not hear it.
        self.0.close(Some(frame)).ok();
    }
}

impl ServerConnection for WebsocketConnection {
    fn open(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let mut websocket = Self::connect(server, lifeline, "Api-Key")?;
        // The server's metadata: a map without a fixed structure.
        websocket.next_message()?;
        Ok(websocket)
    }

    fn send(&mut self, request: &Bytes) -> Result<(), CallError> {
        self.0.get_mut().renew();
        self.0
            .send(Message::Binary(request.clone()))
            .map_err(|err| self.trouble(err))
    }

    fn receive(&mut self) -> Result<Bytes, CallError> {
        self.0.get_mut().renew();
        self.next_message()
    }

    fn hurry(&mut self) {
        self.0.get_mut().hurry();
    }
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

/// Explains a failed handshake.
fn refusal(err: Error, lifeline: &Lifeline, server: &PolicyServer) -> CallError {
    match err {
        _ if lifeline.is_cut() => CallError::Cut,
        Error::Http(response) => {
            let status = response.status();
            let text = format!("it answers HTTP {status}{}", hint(status, server));
            // A proxy answers like this while the server behind it starts.
            let may_pass = status.is_server_error() || status.as_u16() == 429;
            if may_pass {
                CallError::Away(text)
            } else {
                CallError::Wrong(text)
            }
        }
        Error::Io(err) if err.kind() == std::io::ErrorKind::TimedOut => CallError::Away(format!(
            "no answer within {} s",
            server.timeout.as_secs_f64()
        )),
        Error::Io(err) => match reason_of(&err) {
            Some(reason) => CallError::Wrong(reason),
            None => CallError::Away(format!("{err}{}", of_tls(server))),
        },
        Error::Protocol(ProtocolError::HandshakeIncomplete) => {
            CallError::Away(format!("it closed the connection{}", of_tls(server)))
        }
        other => CallError::Wrong(format!(
            "it does not speak the websocket protocol: {other}{}",
            of_tls(server)
        )),
    }
}

/// Says what a refusal for want of a token may mean.
fn hint(status: StatusCode, server: &PolicyServer) -> &'static str {
    match (status, &server.token) {
        (StatusCode::UNAUTHORIZED, None) => {
            "; remote_api_token_env names the variable with its token"
        }
        (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, Some(_)) => {
            "; it does not accept the token of remote_api_token_env"
        }
        _ => "",
    }
}

/// Says what a failed handshake without TLS may mean.
fn of_tls(server: &PolicyServer) -> &'static str {
    match &server.tls {
        Some(_) => "",
        None => "; a server with TLS needs wss:// in remote_host",
    }
}

fn trouble(stream: &ServerStream, err: Error) -> CallError {
    match err {
        Error::Io(err) => stream.trouble(&err),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
            CallError::Away("it closed the connection".to_owned())
        }
        other => CallError::Wrong(format!("it does not speak the websocket protocol: {other}")),
    }
}

fn end_of(text: &str) -> &str {
    let text = text.trim();
    let from = text
        .char_indices()
        .rev()
        .nth(LONGEST_WORDS - 1)
        .map_or(0, |(at, _)| at);
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_traceback_the_end_is_told() {
        assert_eq!(end_of("  ValueError: no\n"), "ValueError: no");
        let long = format!("Traceback\n{}ValueError: no", "é".repeat(5000));
        let told = end_of(&long);
        assert!(told.ends_with("ValueError: no") && told.chars().count() == LONGEST_WORDS);
    }
}
