//! How a connection ends: for which reason the server closes it, and how it notices that the client
//! has closed it.

use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;

/// Interval at which a waiting client that has sent more data is checked for disconnection.
const LOOK: Duration = Duration::from_millis(200);

/// The reason why a connection was closed.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// An error of the network.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What the client did, for which the server closed the connection.
    #[error("{0}")]
    Violation(String),
}

impl From<tungstenite::Error> for CloseReason {
    fn from(err: tungstenite::Error) -> Self {
        match err {
            tungstenite::Error::Io(err) => Self::Io(err),
            other => Self::Violation(format!("websocket: {other}")),
        }
    }
}

impl From<String> for CloseReason {
    fn from(reason: String) -> Self {
        Self::Violation(reason)
    }
}

/// The reason for a client that sent or read too slowly.
pub fn slow() -> CloseReason {
    let reason = "nothing was received in the middle of a message for too long";
    CloseReason::Violation(reason.to_owned())
}

/// Does what the client must not delay for longer than `limit`.
///
/// # Errors
/// Returns the step's error, or that the client is slow.
pub async fn within<T, E: Into<CloseReason>>(
    limit: Duration,
    step: impl Future<Output = Result<T, E>>,
) -> Result<T, CloseReason> {
    let done = timeout(limit, step).await.map_err(|_| slow())?;
    done.map_err(E::into)
}

/// Waits until the peer has closed the connection, even if unread data precedes the close.
pub async fn gone(stream: &TcpStream) {
    // Data is not read before the current request has its answer, so readiness does not change when
    // the close arrives behind it. Poll instead.
    while let Ok(1..) = stream.peek(&mut [0]).await {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(LOOK).await,
            _ => return,
        }
    }
}
