//! One websocket connection to an openpi server: the server first sends its metadata, and then
//! answers each binary message with one message.

use bytes::Bytes;
use tungstenite::client::IntoClientRequest;
use tungstenite::http::{HeaderValue, header};
use tungstenite::protocol::WebSocketConfig;
use tungstenite::{Error, HandshakeError, Message, WebSocket};

use crate::policy::remote::{Connection, LONGEST_ANSWER, Lifeline, Server, Stream, Trouble};

/// Maximum number of characters of a server's traceback that are shown, from its end.
const LONGEST_WORDS: usize = 2000;

/// A connection to `WebsocketPolicyServer`.
#[derive(Debug)]
pub struct Websocket(WebSocket<Stream>);

impl Websocket {
    fn trouble(&self, err: Error) -> Trouble {
        trouble(self.0.get_ref(), err)
    }

    /// Returns the next data message.
    fn next(&mut self) -> Result<Bytes, Trouble> {
        loop {
            match self.0.read().map_err(|err| self.trouble(err))? {
                Message::Binary(bytes) => return Ok(bytes),
                // On an error, the reference sends the traceback of its policy as text and closes
                // the connection.
                Message::Text(text) => {
                    return Err(Trouble::Wrong(format!(
                        "it says: {}",
                        end_of(text.as_str())
                    )));
                }
                Message::Close(frame) => {
                    let why = frame.map(|frame| {
                        format!(" ({} {})", u16::from(frame.code), frame.reason.as_str())
                    });
                    return Err(Trouble::Away(format!(
                        "it closed the connection{}",
                        why.unwrap_or_default()
                    )));
                }
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }
}

impl Connection for Websocket {
    fn open(server: &Server, lifeline: &Lifeline) -> Result<Self, Trouble> {
        let stream = Stream::connect(server, lifeline)?;
        let wrong =
            |err: String| Trouble::Wrong(format!("no request for a websocket can be made: {err}"));
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
                return Err(Trouble::Away("no handshake in time".to_owned()));
            }
        };
        // The server's metadata: a map without a fixed structure.
        websocket.next()?;
        Ok(websocket)
    }

    fn send(&mut self, request: &Bytes) -> Result<(), Trouble> {
        self.0.get_mut().renew();
        self.0
            .send(Message::Binary(request.clone()))
            .map_err(|err| self.trouble(err))
    }

    fn receive(&mut self) -> Result<Bytes, Trouble> {
        self.0.get_mut().renew();
        self.next()
    }
}

/// Explains a failed handshake.
fn refusal(err: Error, lifeline: &Lifeline, server: &Server) -> Trouble {
    match err {
        _ if lifeline.is_cut() => Trouble::Cut,
        Error::Http(response) => {
            let status = response.status();
            let text = format!("it answers HTTP {status}");
            // A proxy answers like this while the server behind it starts.
            let may_pass = status.is_server_error() || status.as_u16() == 429;
            if may_pass {
                Trouble::Away(text)
            } else {
                Trouble::Wrong(text)
            }
        }
        Error::Io(err) if err.kind() == std::io::ErrorKind::TimedOut => Trouble::Away(format!(
            "no answer within {} s",
            server.timeout.as_secs_f64()
        )),
        Error::Io(err) => Trouble::Away(err.to_string()),
        Error::Protocol(tungstenite::error::ProtocolError::HandshakeIncomplete) => {
            Trouble::Away("it closed the connection".to_owned())
        }
        other => Trouble::Wrong(format!("it speaks no websocket: {other}")),
    }
}

fn trouble(stream: &Stream, err: Error) -> Trouble {
    match err {
        Error::Io(err) => stream.trouble(&err),
        Error::ConnectionClosed
        | Error::AlreadyClosed
        | Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
            Trouble::Away("it closed the connection".to_owned())
        }
        other => Trouble::Wrong(format!("it speaks no websocket: {other}")),
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
