//! Exports the state of a run as Prometheus metrics: `GET /metrics` in text format 0.0.4.
//!
//! Anyone who reaches the port can read the metrics and nothing else. Each connection serves one
//! request and has [`PATIENCE`] for request and answer. At most [`CONNECTIONS`] are open at a time;
//! when another arrives, the oldest is closed.

mod metrics;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, LocalSet, spawn_local};
use tokio::time::{sleep, timeout};

use crate::eval::monitor::exporter::metrics::render;
use crate::eval::monitor::view::snapshot::RunSnapshot;

/// Maximum number of open connections. Usually there are one or two scrapers.
const CONNECTIONS: usize = 64;
/// Maximum size of a request in bytes.
const LONGEST_REQUEST: usize = 8192;
/// Time limit for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`, for example when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The metrics server. It answers for as long as the process lives.
pub struct Exporter {
    text: Arc<Mutex<String>>,
}

impl Exporter {
    /// Listens on `port` of the address `host`.
    ///
    /// # Errors
    /// Returns an error if the address is not one of this machine, or if the port is in use or not
    /// allowed.
    pub fn listen(host: IpAddr, port: u16) -> io::Result<Self> {
        Self::listen_with(TcpListener::bind(SocketAddr::new(host, port))?, PATIENCE)
    }

    fn listen_with(listener: TcpListener, patience: Duration) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let text = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&text);
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || {
                if let Err(err) =
                    LocalSet::new().block_on(&executor, serve(listener, shown, patience))
                {
                    tracing::debug!(%err, "metrics are no longer served");
                }
            })?;
        Ok(Self { text })
    }

    /// Sets the metrics that are served from now on.
    pub fn show(&self, snapshot: &RunSnapshot) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = render(snapshot);
    }
}

async fn serve(
    listener: TcpListener,
    text: Arc<Mutex<String>>,
    patience: Duration,
) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(BACK_OFF).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS {
            // The oldest connection is the least likely to send a request.
            open.pop_front().iter().for_each(AbortHandle::abort);
        }
        let text = Arc::clone(&text);
        // The timeout closes connections of clients that are too slow or gone.
        let answered = async move { drop(timeout(patience, answer(stream, &text)).await) };
        open.push_back(spawn_local(answered).abort_handle());
    }
}

async fn answer(mut stream: TcpStream, text: &Mutex<String>) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let room = LONGEST_REQUEST - request.len();
        if room == 0
            || (&mut stream)
                .take(room as u64)
                .read_buf(&mut request)
                .await?
                == 0
        {
            return Ok(());
        }
    }
    let mut words = request.split(|byte| byte.is_ascii_whitespace());
    let path = words
        .nth(1)
        .and_then(|path| path.split(|byte| *byte == b'?').next());
    let (status, body) = match (request.starts_with(b"GET "), path) {
        (true, Some(b"/metrics" | b"/")) => (
            "200 OK",
            text.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        ),
        (true, _) => ("404 Not Found", "rrun: /metrics is here\n".to_owned()),
        (false, _) => ("405 Method Not Allowed", "expected GET\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}
