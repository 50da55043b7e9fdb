//! How a connection ends: for which reason the server closes it, and how it notices that the client
//! has closed it.

use std::io;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;

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

impl CloseReason {
    /// The reason for a client that sent or read too slowly.
    pub fn slow() -> Self {
        Self::Violation("nothing was received in the middle of a message for too long".to_owned())
    }
}

impl From<String> for CloseReason {
    fn from(reason: String) -> Self {
        Self::Violation(reason)
    }
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
