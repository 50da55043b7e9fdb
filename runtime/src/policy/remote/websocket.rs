//! One websocket connection to an openpi server: the server first sends its metadata, and then
//! answers each binary message with one message.

use bytes::Bytes;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::{HeaderValue, header};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::policy::remote::{
    CallError, LONGEST_ANSWER, Lifeline, PatientStream, PolicyServer, ServerConnection,
};

/// Maximum number of characters of a server's traceback that are shown, from its end.
const LONGEST_WORDS: usize = 2000;

/// A connection to `WebsocketPolicyServer`.
#[derive(Debug)]
pub struct WebsocketConnection(WebSocket<PatientStream>);

impl WebsocketConnection {
    fn trouble(&self, err: Error) -> CallError {
        trouble(self.0.get_ref(), err)
    }

    /// Returns the next data message.
    fn next(&mut self) -> Result<Bytes, CallError> {
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

impl ServerConnection for WebsocketConnection {
    fn open(server: &PolicyServer, lifeline: &Lifeline) -> Result<Self, CallError> {
        let stream = PatientStream::connect(server, lifeline)?;
        let wrong = |err: String| {
            CallError::Wrong(format!("no request for a websocket can be made: {err}"))
        };
        let mut request = server
            .to_string()
            .into_client_request()
            .map_err(|err| wrong(err.to_string()))?;
        if let Some(token) = &server.token {
            let value = HeaderValue::from_str(&format!("Api-Key {}", token.0));
            let value = value.map_err(|_| {
                wrong("the token has characters that no header may have".to_owned())
            })?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let config = WebSocketConfig::default()
            .max_message_size(Some(LONGEST_ANSWER))
            .max_frame_size(Some(LONGEST_ANSWER));
        let made = tungstenite::client::client_with_config(request, stream, Some(config));
        let mut websocket = match made {
            Ok((websocket, _)) => Self(websocket),
            Err(HandshakeError::Failure(err)) => return Err(refusal(err, lifeline, server)),
            Err(HandshakeError::Interrupted(_)) => {
                return Err(CallError::Away("no handshake in time".to_owned()));
            }
        };
        // The server's metadata: a map without a fixed structure.
        websocket.next()?;
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
        self.next()
    }
}

/// Explains a failed handshake.
fn refusal(err: Error, lifeline: &Lifeline, server: &PolicyServer) -> CallError {
    match err {
        _ if lifeline.is_cut() => CallError::Cut,
        Error::Http(response) => {
            let status = response.status();
            let text = format!("it answers HTTP {status}");
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
        Error::Io(err) => CallError::Away(err.to_string()),
        Error::Protocol(tungstenite::error::ProtocolError::HandshakeIncomplete) => {
            CallError::Away("it closed the connection".to_owned())
        }
        other => CallError::Wrong(format!("it does not speak the websocket protocol: {other}")),
    }
}

fn trouble(stream: &PatientStream, err: Error) -> CallError {
    match err {
        Error::Io(err) => stream.trouble(&err),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
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
