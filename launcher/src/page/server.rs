//! Accepts connections within limits, and hands their requests on.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::select;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::page::answer::answer;
use crate::page::shared::Shared;
use crate::page::stall::StallGuard;
use crate::page::{FAREWELL, updater};

/// Maximum number of connections; a browser opens up to six.
const CONNECTIONS: usize = 96;

/// Maximum number of streams of events, so that they leave connections for other requests.
const STREAMS: usize = 32;

/// Time for the head of a request, and between two requests of a connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// Time in which a peer has to take at least one byte.
const STALL: Duration = Duration::from_secs(20);

/// Bytes of a request's head, and of an answer that wait to be sent.
const BUFFER: usize = 16 << 10;

/// Bytes that the kernel keeps for a peer that does not take them.
const SEND_BUFFER: usize = 256 << 10;

/// Pause after a failed `accept`, for example when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Serves the page until the launch ends.
pub(super) async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    mut is_over: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let updater = tokio::spawn(updater::run(Arc::clone(&shared), is_over.clone()));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    let streams = Arc::new(Semaphore::new(STREAMS));
    loop {
        let accepted = select! {
            biased;
            _ = is_over.changed() => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(BACK_OFF).await;
            continue;
        };
        // Without a free place the connection is closed.
        let Ok(permit) = Arc::clone(&connections).try_acquire_owned() else {
            continue;
        };
        let (shared, streams) = (Arc::clone(&shared), Arc::clone(&streams));
        tokio::spawn(async move {
            serve(stream, shared, streams).await;
            drop(permit);
        });
    }
    drop(listener);
    let last_look = timeout(FAREWELL, updater);
    // Whoever has not seen the last state by then will not.
    if last_look.await.is_ok() && *shared.watchers().borrow() > 0 {
        sleep(FAREWELL / 4).await;
    }
    Ok(())
}

async fn serve(stream: TcpStream, shared: Arc<Shared>, streams: Arc<Semaphore>) {
    let socket = socket2::SockRef::from(&stream);
    // A socket with other buffers works as well.
    let _ = socket.set_send_buffer_size(SEND_BUFFER);
    let _ = stream.set_nodelay(true);
    let io = TokioIo::new(StallGuard::new(stream, STALL));
    let on_request = move |request| {
        let (shared, streams) = (Arc::clone(&shared), Arc::clone(&streams));
        async move { Ok::<_, Infallible>(answer(request, &shared, &streams).await) }
    };
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(BUFFER)
        .max_headers(64)
        .serve_connection(io, service_fn(on_request))
        .await;
    if let Err(err) = served {
        tracing::debug!(%err, "a connection of the page has ended");
    }
}
