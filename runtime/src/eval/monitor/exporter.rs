//! Exports the state of a run as Prometheus metrics: `GET /metrics` in text format 0.0.4.
//!
//! Anyone who reaches the port can read the metrics and nothing else. Each connection serves one
//! request and has [`PATIENCE`] for request and answer. At most [`CONNECTIONS`] are open at a time;
//! when another arrives, the oldest is closed.

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

use crate::eval::monitor::view::{RankView, Snapshot};
use crate::prometheus::Metrics;

/// Maximum number of open connections. Usually there are one or two scrapers.
const CONNECTIONS: usize = 64;
/// Maximum size of a request in bytes.
const LONGEST_REQUEST: usize = 8192;
/// Time limit for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`, for example when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Name, type, help text and value of a metric that each rank has.
type PerRank = (
    &'static str,
    &'static str,
    &'static str,
    fn(&RankView) -> f64,
);

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
                    tracing::debug!(%err, "metrics are not answered any more");
                }
            })?;
        Ok(Self { text })
    }

    /// Sets the metrics that are served from now on.
    pub fn show(&self, snapshot: &Snapshot) {
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
        (false, _) => ("405 Method Not Allowed", "GET is needed\n".to_owned()),
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

fn render(snapshot: &Snapshot) -> String {
    let mut metrics = Metrics::new("rrun_");
    let mut one =
        |name: &str, kind: &str, help: &str, value: f64| metrics.one(name, kind, help, value);
    let failed = snapshot
        .done
        .saturating_sub(snapshot.solved + snapshot.errors);
    if let Some(expected) = snapshot.expected {
        one(
            "episodes_expected",
            "gauge",
            "Episodes that the jobs ask for.",
            expected as f64,
        );
    }
    one(
        "episodes_solved",
        "gauge",
        "Episodes that ended in success, earlier launches included.",
        snapshot.solved as f64,
    );
    one(
        "episodes_failed",
        "gauge",
        "Episodes that ended without success or error.",
        failed as f64,
    );
    one(
        "episodes_errored",
        "gauge",
        "Episodes that an error ended.",
        snapshot.errors as f64,
    );
    one(
        "episodes_per_second",
        "gauge",
        "Episodes a second over the last minute.",
        snapshot.rate,
    );
    if let Some(left) = snapshot.left {
        one(
            "left_seconds",
            "gauge",
            "Time until the last rank is done, at the present rates.",
            left.as_secs_f64(),
        );
    }
    one(
        "jobs_done",
        "gauge",
        "Jobs, or parts of them, that ranks have ended.",
        snapshot.jobs_done as f64,
    );
    let ranks: [PerRank; 7] = [
        (
            "rank_steps_total",
            "counter",
            "Steps of a rank's environments.",
            |rank| rank.beat.steps as f64,
        ),
        (
            "rank_episodes_total",
            "counter",
            "Episodes that a rank has ended.",
            |rank| rank.beat.ended as f64,
        ),
        (
            "rank_sim_busy_ratio",
            "gauge",
            "Share of time in which environments were at work.",
            |rank| rank.sim_busy,
        ),
        (
            "rank_infer_busy_ratio",
            "gauge",
            "Share of time in which the policy inferred.",
            |rank| rank.infer_busy,
        ),
        (
            "rank_arrived",
            "gauge",
            "1 when a rank has nothing left to do.",
            |rank| f64::from(u8::from(rank.beat.arrived)),
        ),
        (
            "rank_gpu_used_bytes",
            "gauge",
            "Memory of a rank's GPU that is taken.",
            |rank| rank.beat.gpu_used as f64,
        ),
        (
            "rank_gpu_total_bytes",
            "gauge",
            "Memory of a rank's GPU.",
            |rank| rank.beat.gpu_total as f64,
        ),
    ];
    for (name, kind, help, value) in ranks {
        metrics.by(
            "rank",
            (name, kind, help),
            snapshot.ranks.iter().map(value).enumerate(),
        );
    }
    let busy = |(rank, view): (usize, &RankView)| Some((rank, view.gpu_busy?));
    let busy: Vec<_> = snapshot.ranks.iter().enumerate().filter_map(busy).collect();
    if !busy.is_empty() {
        let help = "Share of time in which a rank's GPU was at work, for whomever.";
        metrics.by("rank", ("rank_gpu_busy_ratio", "gauge", help), busy);
    }
    metrics.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    use crate::clock::now;
    use crate::eval::monitor::heartbeat::Heartbeat;
    use crate::eval::monitor::meter::GpuBusy;
    use crate::eval::monitor::view::{Before, View};

    #[test]
    fn a_gpu_is_busy_where_its_driver_tells_and_there_alone() {
        let mut view = View::new(Before::default(), 2);
        let text = render(&view.on(&[Heartbeat::default(), Heartbeat::default()], now()));
        assert!(!text.contains("rank_gpu_busy_ratio"), "{text}");
        let gpu_busy = Some(GpuBusy {
            busy_s: 1.0,
            seen_s: 4.0,
        });
        let text = render(&view.on(
            &[
                Heartbeat::default(),
                Heartbeat {
                    gpu_busy,
                    ..Heartbeat::default()
                },
            ],
            now(),
        ));
        let lines: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("rrun_rank_gpu_busy_ratio"))
            .collect();
        assert_eq!(lines, ["rrun_rank_gpu_busy_ratio{rank=\"1\"} 0.25"]);
    }

    const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    /// Starts an exporter with the connection timeout `patience`; returns it with its address.
    fn exporter(patience: Duration) -> (Exporter, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (Exporter::listen_with(listener, patience).unwrap(), address)
    }

    fn connect(address: SocketAddr) -> std::net::TcpStream {
        let stream = std::net::TcpStream::connect(address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut client = connect(address);
        client.write_all(request).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits until the server closes the connection or sends data; returns whether it has closed
    /// it.
    fn is_closed(client: &mut std::net::TcpStream) -> bool {
        !matches!(client.read(&mut [0; 100]), Ok(1..))
    }

    #[test]
    fn numbers_are_answered_over_http() {
        let (exporter, address) = exporter(PATIENCE);
        let mut view = View::new(
            Before {
                expected: Some(9),
                ..Before::default()
            },
            2,
        );
        let beat = Heartbeat {
            ended: 2,
            ended_solved: 1,
            steps: 7,
            ..Heartbeat::default()
        };
        exporter.show(&view.on(&[beat, Heartbeat::default()], now()));
        let answer = ask(address, GET);
        assert!(
            answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"),
            "{answer}"
        );
        for line in [
            "rrun_episodes_expected 9",
            "rrun_episodes_failed 1",
            "rrun_rank_steps_total{rank=\"0\"} 7",
        ] {
            assert!(
                answer.lines().any(|found| found == line),
                "{line}: {answer}"
            );
        }
        assert!(ask(address, b"GET /metrics?x=1 HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200"));
        assert!(ask(address, b"GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
        assert!(ask(address, b"POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    }

    #[test]
    fn a_client_that_sends_nothing_is_let_go_of() {
        let (_exporter, address) = exporter(Duration::from_millis(50));
        let mut silent = connect(address);
        let mut half = connect(address);
        half.write_all(b"GET /metrics HT").unwrap();
        assert!(is_closed(&mut silent) && is_closed(&mut half));
    }

    #[test]
    fn silent_clients_keep_nobody_from_being_answered() {
        let (_exporter, address) = exporter(Duration::from_secs(3600));
        let mut silent: Vec<_> = (0..3 * CONNECTIONS).map(|_| connect(address)).collect();
        assert!(ask(address, GET).starts_with("HTTP/1.1 200"));
        assert!(is_closed(&mut silent[0]));
    }

    #[test]
    fn a_request_without_an_end_is_closed() {
        let (_exporter, address) = exporter(Duration::from_secs(3600));
        let mut client = connect(address);
        // The server may close the connection before everything is written.
        client.write_all(&[b'x'; 2 * LONGEST_REQUEST]).ok();
        assert!(is_closed(&mut client));
    }
}
