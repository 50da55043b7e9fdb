//! The port: takes connections in, and sends each to those who speak its language.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use jobs::serve_args::Protocol;
use tokio::io::Interest;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::serve::batcher::ClientId;
use crate::serve::house::House;
use crate::serve::now;
use crate::serve::{desk, http, zmtp};
use wire::zmtp::Violation;

/// How long a connection may be silent before its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// How often a client that waits and has sent something more is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// When there are no more descriptors, until one may be free.
const PAUSE: Duration = Duration::from_millis(50);

/// Why a connection was closed by us.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The network.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It does not keep to ZMTP.
    #[error(transparent)]
    Zmtp(#[from] Violation),
    /// It does not keep to HTTP.
    #[error("no HTTP request: {0}")]
    Http(&'static str),
    /// It does not keep to websockets.
    #[error("websocket: {0}")]
    Websocket(String),
    /// It takes too long, or reads too slowly.
    #[error("nothing was heard in the middle of a message for too long")]
    Slow,
    /// It speaks what is not served here.
    #[error("a protocol that --protocol leaves out")]
    Unwanted,
}

/// Takes connections in until the end is asked for.
pub async fn run(listener: TcpListener, house: Arc<House>) {
    let mut stop = house.stop.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(Option::is_some) => return,
        };
        match accepted {
            Ok((stream, _)) => admit(stream, &house),
            Err(err) => {
                tracing::debug!(%err, "cannot accept");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn admit(stream: TcpStream, house: &Arc<House>) {
    let Some(admitted) = house.seats().admit(house.token.is_some(), now()) else {
        house.stats.connected(true);
        return;
    };
    house.stats.connected(admitted.evicted.is_some());
    admitted.evicted.iter().for_each(|client| house.close(*client));
    // Without it answers only come later.
    stream.set_nodelay(true).ok();
    let presence = Presence { house: Arc::clone(house), client: admitted.client };
    let task = tokio::spawn(async move {
        let presence = presence;
        if let Err(closed) = welcome(stream, &presence).await {
            if !matches!(closed, Closed::Io(_)) {
                presence.house.stats.violated();
            }
            tracing::debug!(client = presence.client.0, %closed, "closed");
        }
    });
    house.opened(admitted.client, task.abort_handle());
}

/// Tells the others when a connection is gone, however it went.
struct Presence {
    house: Arc<House>,
    client: ClientId,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.house.forget(self.client);
        // The desk has ended with the server.
        let _ = self.house.desk.send(desk::Message::Left(self.client));
    }
}

async fn welcome(stream: TcpStream, presence: &Presence) -> Result<(), Closed> {
    let mut first = [0];
    if timeout(FIRST_BYTE, stream.peek(&mut first)).await.map_err(|_| Closed::Slow)?? == 0 {
        return Ok(());
    }
    let house = Arc::clone(&presence.house);
    match (first[0], house.protocol) {
        (0xff, Protocol::Zmq | Protocol::Both) => zmtp::serve(stream, house, presence.client).await,
        (0xff, Protocol::Websocket) => Err(Closed::Unwanted),
        _ => http::serve(stream, house, presence.client).await,
    }
}

/// Ends when the other side has closed its connection, also if it has said something before that nobody has read.
pub async fn gone(stream: &TcpStream) {
    // What it said is not read before it has its answer, so nothing tells when the end comes behind it: one has to look.
    while let Ok(1..) = stream.peek(&mut [0]).await {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => tokio::time::sleep(LOOK).await,
            _ => return,
        }
    }
}
