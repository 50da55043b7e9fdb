//! The listener: accepts connections and dispatches each by its protocol.

use std::sync::Arc;
use std::time::Duration;

use jobs::serve_args::Protocol;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::clock::now;
use crate::serve::close::CloseReason;
use crate::serve::connections::ConnectionId;
use crate::serve::front::{FrontConnection, FrontLink};
use crate::serve::server::ServerState;
use crate::serve::stats::Counted;
use crate::serve::{http, zmtp};

/// Time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`, until a file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections, also those that come by the front port, until a stop is requested.
pub async fn run(listener: TcpListener, mut front: Option<FrontLink>, server: Arc<ServerState>) {
    let mut stop = server.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| (stream, None)),
            given = given(front.as_ref()) => match given {
                Ok((stream, connection)) => Ok((stream, Some(connection))),
                Err(err) => {
                    tracing::debug!(%err, "the front port is closed");
                    front = None;
                    continue;
                }
            },
            _ = stop.wait_for(Option::is_some) => return,
        };
        match accepted {
            Ok((stream, connection)) => admit(stream, connection, &server),
            Err(err) => {
                tracing::debug!(%err, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Waits for a connection by the front port, or forever if there is none.
async fn given(front: Option<&FrontLink>) -> std::io::Result<(TcpStream, FrontConnection)> {
    match front {
        Some(front) => front.accept().await,
        None => std::future::pending().await,
    }
}

fn admit(stream: TcpStream, front: Option<FrontConnection>, server: &Arc<ServerState>) {
    let Some(admitted) = server
        .connections()
        .admit(server.rules.token.is_some(), now())
    else {
        server.stats.count(Counted::Connection);
        server.stats.count(Counted::Evicted);
        return;
    };
    server.stats.count(Counted::Connection);
    if let Some(client) = admitted.evicted {
        server.stats.count(Counted::Evicted);
        server.close(client);
    }
    // An error only delays answers.
    stream.set_nodelay(true).ok();
    let presence = Presence {
        server: Arc::clone(server),
        client: admitted.client,
        _front: front,
    };
    let task = tokio::spawn(async move {
        let presence = presence;
        if let Err(reason) = welcome(stream, &presence).await {
            if !matches!(reason, CloseReason::Io(_)) {
                presence.server.stats.count(Counted::Violation);
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
    /// Tells the front port that the connection is closed.
    _front: Option<FrontConnection>,
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
        .map_err(|_| CloseReason::slow())??
        == 0
    {
        return Ok(());
    }
    let server = Arc::clone(&presence.server);
    match (first[0], server.rules.protocol) {
        (0xff, Protocol::Zmq | Protocol::Both) => {
            zmtp::serve(stream, server, presence.client).await
        }
        (0xff, Protocol::Websocket) => {
            let reason = "a protocol that --protocol leaves out";
            Err(CloseReason::Violation(reason.to_owned()))
        }
        _ => http::serve(stream, server, presence.client).await,
    }
}
