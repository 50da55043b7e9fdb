//! The listener: accepts connections and dispatches each by its protocol.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jobs::serve_args::Protocol;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::clock::now;
use crate::serve::batcher::ClientId;
use crate::serve::server::ServerState;
use crate::serve::{dispatcher, http, zmtp};
use wire::zmtp::Violation;

/// Time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Interval at which a waiting client that has sent more data is checked for disconnection.
const LOOK: Duration = Duration::from_millis(200);

/// Pause after a failed `accept`, until a file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(50);

/// The reason why the server closed a connection.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// An error of the network.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The client violated ZMTP.
    #[error(transparent)]
    Zmtp(#[from] Violation),
    /// The client violated HTTP.
    #[error("no HTTP request: {0}")]
    Http(&'static str),
    /// The client violated the WebSocket protocol.
    #[error("websocket: {0}")]
    Websocket(String),
    /// The client sent or read too slowly.
    #[error("nothing was heard in the middle of a message for too long")]
    Slow,
    /// The client speaks a protocol that is not served.
    #[error("a protocol that --protocol leaves out")]
    Unwanted,
}

/// Accepts connections until a stop is requested.
pub async fn run(listener: TcpListener, server: Arc<ServerState>) {
    let mut stop = server.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(Option::is_some) => return,
        };
        match accepted {
            Ok((stream, _)) => admit(stream, &server),
            Err(err) => {
                tracing::debug!(%err, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, server: &Arc<ServerState>) {
    let Some(admitted) = server.connections().admit(server.token.is_some(), now()) else {
        server.stats.connected(true);
        return;
    };
    server.stats.connected(admitted.evicted.is_some());
    admitted
        .evicted
        .iter()
        .for_each(|client| server.close(*client));
    // An error only delays answers.
    stream.set_nodelay(true).ok();
    let presence = Presence {
        server: Arc::clone(server),
        client: admitted.client,
    };
    let task = tokio::spawn(async move {
        let presence = presence;
        if let Err(closed) = welcome(stream, &presence).await {
            if !matches!(closed, Closed::Io(_)) {
                presence.server.stats.violated();
            }
            tracing::debug!(client = presence.client.0, %closed, "closed");
        }
    });
    server.opened(admitted.client, task.abort_handle());
}

/// Removes a connection from the shared state when its task ends, for whatever reason.
struct Presence {
    server: Arc<ServerState>,
    client: ClientId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.server.forget(self.client);
        // The dispatcher has ended if the server is stopping.
        let _ = self
            .server
            .dispatcher
            .send(dispatcher::Message::Left(self.client));
    }
}

async fn welcome(stream: TcpStream, presence: &Presence) -> Result<(), Closed> {
    let mut first = [0];
    if timeout(FIRST_BYTE, stream.peek(&mut first))
        .await
        .map_err(|_| Closed::Slow)??
        == 0
    {
        return Ok(());
    }
    let server = Arc::clone(&presence.server);
    match (first[0], server.protocol) {
        (0xff, Protocol::Zmq | Protocol::Both) => {
            zmtp::serve(stream, server, presence.client).await
        }
        (0xff, Protocol::Websocket) => Err(Closed::Unwanted),
        _ => http::serve(stream, server, presence.client).await,
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
