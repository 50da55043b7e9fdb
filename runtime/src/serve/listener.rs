//! The listener: accepts connections and dispatches each by its protocol.

use std::sync::Arc;
use std::time::Duration;

use jobs::serve_args::Protocol;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::clock::now;
use crate::serve::close::CloseReason;
use crate::serve::connections::ConnectionId;
use crate::serve::server::ServerState;
use crate::serve::{http, zmtp};

/// Time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`, until a file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(50);

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
        if let Err(reason) = welcome(stream, &presence).await {
            if !matches!(reason, CloseReason::Io(_)) {
                presence.server.stats.violated();
            }
            tracing::debug!(client = presence.client.0, %reason, "closed");
        }
    });
    server.opened(admitted.client, task.abort_handle());
}

/// Removes a connection from the shared state when its task ends, for whatever reason.
struct Presence {
    server: Arc<ServerState>,
    client: ConnectionId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.server.forget(self.client);
    }
}

async fn welcome(stream: TcpStream, presence: &Presence) -> Result<(), CloseReason> {
    let mut first = [0];
    if timeout(FIRST_BYTE, stream.peek(&mut first))
        .await
        .map_err(|_| CloseReason::Slow)??
        == 0
    {
        return Ok(());
    }
    let server = Arc::clone(&presence.server);
    match (first[0], server.protocol) {
        (0xff, Protocol::Zmq | Protocol::Both) => {
            zmtp::serve(stream, server, presence.client).await
        }
        (0xff, Protocol::Websocket) => Err(CloseReason::Unwanted),
        _ => http::serve(stream, server, presence.client).await,
    }
}
