//! What went wrong with a connection, in sentences about the server.

use std::io::{self, ErrorKind};

use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::error::{ProtocolError, TlsError};
use tokio_tungstenite::tungstenite::http::StatusCode;

use crate::policy::remote::PolicyServer;
use crate::policy::remote::tls::reason_of;
use crate::protocols::CallError;

/// Maximum number of characters of a server's traceback that are shown, from its end.
const LONGEST_WORDS: usize = 2000;

/// Explains a failed handshake.
pub(super) fn refusal(err: Error, server: &PolicyServer) -> CallError {
    match err {
        Error::Http(response) => {
            let status = response.status();
            let text = format!("it answers HTTP {status}{}", hint(status, server));
            // A proxy answers like this while the server behind it starts.
            match status.is_server_error() || status.as_u16() == 429 {
                true => CallError::Away(text),
                false => CallError::Wrong(text),
            }
        }
        Error::Tls(TlsError::InvalidDnsName) => CallError::Wrong(format!(
            "`{}` cannot be the name on a certificate",
            server.host
        )),
        Error::Io(err) => match reason_of(&err) {
            Some(reason) => CallError::Wrong(reason),
            // Some servers without TLS close the connection, and so do proxies whose server is
            // starting.
            None if server.tls.is_some() && is_end(&err) => CallError::Away(
                "it closed the connection during the TLS handshake; a server without TLS needs \
                 ws:// in remote_host"
                    .to_owned(),
            ),
            None => CallError::Away(format!("{}{}", plain(&err), of_tls(server))),
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

/// Explains a failed step after the handshake.
impl From<Error> for CallError {
    fn from(err: Error) -> Self {
        match err {
            Error::Io(err) => err.into(),
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => {
                Self::Away("it closed the connection".to_owned())
            }
            other => Self::Wrong(format!("it does not speak the websocket protocol: {other}")),
        }
    }
}

impl From<io::Error> for CallError {
    fn from(err: io::Error) -> Self {
        match reason_of(&err) {
            Some(reason) => Self::Wrong(reason),
            None => Self::Away(plain(&err)),
        }
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

/// Returns the system's error message without the error number.
pub(super) fn plain(err: &io::Error) -> String {
    match err.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ if is_end(err) => "it closed the connection".to_owned(),
        ErrorKind::TimedOut => "no connection in time".to_owned(),
        _ => err.to_string(),
    }
}

fn is_end(err: &io::Error) -> bool {
    matches!(
        err.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionAborted
    )
}

/// Returns the end of a traceback.
pub(super) fn end_of(text: &str) -> &str {
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
