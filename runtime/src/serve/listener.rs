//! The listener: accepts connections and dispatches each by its protocol.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use jobs::serve_args::Protocol;
use tokio::net::{TcpListener, TcpStream};

use crate::clock::now;
use crate::serve::connections::Admitted;
use crate::serve::front::{FrontConnection, FrontLink};
use crate::serve::server::ServerState;
use crate::serve::session::{CloseReason, Session, within};
use crate::serve::stats::Counted;
use crate::serve::{http, zmtp};

/// Time limit for the first byte of a connection.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Pause after a failed `accept`, until a file descriptor may be free.
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections, also those that come by the front port, until a stop is requested.
pub async fn run(
    listener: TcpListener,
    mut front: Option<Arc<FrontLink>>,
    server: Arc<ServerState>,
) {
    let mut stop = server.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted.map(|(stream, _)| (stream, None)),
            Some(given) = OptionFuture::from(front.as_ref().map(FrontLink::accept)) => {
                if let Err(err) = &given {
                    tracing::debug!(%err, "the front port is closed");
                    front = None;
                    continue;
                }
                given.map(|(stream, connection)| (stream, Some(connection)))
            }
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

fn admit(stream: TcpStream, front: Option<FrontConnection>, server: &Arc<ServerState>) {
    server.stats.count(Counted::Connection);
    let needs_token = server.rules.api_token.is_some();
    let admitted = server.connections().admit(needs_token, now());
    let Some(Admitted {
        client,
        evicted,
        until,
    }) = admitted
    else {
        server.stats.count(Counted::Evicted);
        return;
    };
    if evicted.is_some() {
        server.stats.count(Counted::Evicted);
    }
    // An error only delays answers.
    stream.set_nodelay(true).ok();
    let (session, server) = (Session::new(Arc::clone(server), client), Arc::clone(server));
    tokio::spawn(async move {
        // Tells the front port at the end that the connection is closed.
        let _front = front;
        let ended = tokio::select! {
            ended = welcome(stream, session) => ended,
            _ = until => Ok(()),
        };
        if let Err(reason) = ended {
            if !matches!(reason, CloseReason::Io(_)) {
                server.stats.count(Counted::Violation);
            }
            tracing::debug!(client = client.0, %reason, "closed");
        }
    });
}

async fn welcome(stream: TcpStream, session: Session) -> Result<(), CloseReason> {
    let mut first = [0];
    if within(FIRST_BYTE, stream.peek(&mut first)).await? == 0 {
        return Ok(());
    }
    match (first[0], session.server.rules.protocol) {
        (0xff, Protocol::Zmq | Protocol::Both) => zmtp::serve(stream, session).await,
        (0xff, Protocol::Websocket) => {
            let reason = "a protocol that --protocol leaves out";
            Err(CloseReason::Violation(reason.to_owned()))
        }
        _ => http::serve(stream, session).await,
    }
}
