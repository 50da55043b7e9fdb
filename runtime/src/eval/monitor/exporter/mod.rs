//! Exports the state of a run as Prometheus metrics: `GET /metrics` in text format 0.0.4.
//!
//! Anyone who reaches the port can read the metrics and nothing else. Each connection serves one
//! request and has [`PATIENCE`] for request and answer. At most [`CONNECTIONS`] are open at a time;
//! when another arrives, the oldest is closed.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::eval::monitor::view::{RankView, RunSnapshot};
use crate::metrics::Metrics;
use crate::serve::http::{METRICS, read_head, response};

/// Maximum number of open connections. Usually there are one or two scrapers.
const CONNECTIONS: usize = 64;
/// Time limit for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause after a failed `accept`, for example when the process is out of file descriptors.
const BACK_OFF: Duration = Duration::from_millis(100);

/// The metrics server. It answers for as long as the process lives.
pub struct Exporter {
    text: Arc<Mutex<String>>,
}

impl Exporter {
    /// Listens on an address.
    ///
    /// # Errors
    /// Returns an error if the address is not one of this machine, or if the port is in use or not
    /// allowed.
    pub fn listen(address: SocketAddr) -> io::Result<Self> {
        Self::listen_with(std::net::TcpListener::bind(address)?, PATIENCE)
    }

    fn listen_with(listener: std::net::TcpListener, patience: Duration) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let text = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&text);
        let listener = runtime.block_on(async { TcpListener::from_std(listener) })?;
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || runtime.block_on(serve(&listener, &shown, patience)))?;
        Ok(Self { text })
    }

    /// Sets the metrics that are served from now on.
    pub fn show(&self, snapshot: &RunSnapshot) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = render(snapshot);
    }
}

async fn serve(listener: &TcpListener, text: &Arc<Mutex<String>>, patience: Duration) {
    let mut open: VecDeque<JoinHandle<_>> = VecDeque::new();
    loop {
        let accepted = listener.accept().await;
        open.retain(|answering| !answering.is_finished());
        if open.len() >= CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            // It is the least likely to send a request.
            oldest.abort();
        }
        match accepted {
            Ok((stream, _)) => {
                let answer = answer(stream, Arc::clone(text));
                open.push_back(tokio::spawn(timeout(patience, answer)));
            }
            Err(_) => sleep(BACK_OFF).await,
        }
    }
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, text: Arc<Mutex<String>>) {
    let mut buffer = BytesMut::with_capacity(1024);
    let Ok(Some(head)) = read_head(&mut stream, &mut buffer).await else {
        return;
    };
    let answer = match (head.is_get, &*head.path) {
        (true, "/metrics" | "/") => {
            let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
            response("200 OK", METRICS, &text)
        }
        (true, _) => response("404 Not Found", "", "rrun: /metrics is here\n"),
        (false, _) => response("405 Method Not Allowed", "", "expected GET\n"),
    };
    // The client may be gone.
    let _ = stream.write_all(answer.as_bytes()).await;
}

/// Name, type and help of the metrics of the whole run, in the order of their values.
const OF_RUN: [&str; 7] = [
    "episodes_expected gauge Episodes that the jobs ask for.",
    "episodes_solved gauge Episodes that ended in success, earlier launches included.",
    "episodes_failed gauge Episodes that ended without success or error.",
    "episodes_errored gauge Episodes that an error ended.",
    "episodes_per_second gauge Episodes per second over the last minute.",
    "left_seconds gauge Time until the last rank is done, at the present rates.",
    "jobs_done gauge Jobs, or parts of them, that ranks have ended.",
];

/// The same of the metrics that each rank has.
const OF_RANK: [&str; 8] = [
    "rank_steps_total counter Steps of a rank's environments.",
    "rank_episodes_total counter Episodes that a rank has ended.",
    "rank_sim_busy_ratio gauge Share of time in which environments were at work.",
    "rank_infer_busy_ratio gauge Share of time in which the policy inferred.",
    "rank_arrived gauge 1 when a rank has nothing left to do.",
    "rank_gpu_used_bytes gauge Memory of a rank's GPU that is taken.",
    "rank_gpu_total_bytes gauge Memory of a rank's GPU.",
    "rank_gpu_busy_ratio gauge Share of time in which a rank's GPU was busy, with any process.",
];

/// Returns the metrics of a run as text, without those that are not known.
fn render(run: &RunSnapshot) -> String {
    let mut metrics = Metrics::new("rrun_");
    let failed = run.done.saturating_sub(run.solved + run.errors);
    let of_run = [
        run.expected.map(|expected| expected as f64),
        Some(run.solved as f64),
        Some(failed as f64),
        Some(run.errors as f64),
        Some(run.rate),
        run.left.map(|left| left.as_secs_f64()),
        Some(run.jobs_done as f64),
    ];
    for (about, value) in OF_RUN.into_iter().zip(of_run) {
        let (name, kind, help) = parts(about);
        let value = value.into_iter();
        value.for_each(|value| metrics.one(name, kind, help, value));
    }
    let of_rank: [fn(&RankView) -> Option<f64>; 8] = [
        |rank| Some(rank.beat.steps as f64),
        |rank| Some(rank.beat.ended as f64),
        |rank| Some(rank.sim_busy),
        |rank| Some(rank.infer_busy),
        |rank| Some(f64::from(u8::from(rank.beat.arrived))),
        |rank| Some(rank.beat.gpu_used as f64),
        |rank| Some(rank.beat.gpu_total as f64),
        |rank| rank.gpu_busy,
    ];
    for (about, value) in OF_RANK.into_iter().zip(of_rank) {
        let values = run.ranks.iter().map(value).enumerate();
        let values: Vec<_> = values
            .filter_map(|(rank, value)| Some((rank, value?)))
            .collect();
        if !values.is_empty() {
            metrics.by("rank", parts(about), values);
        }
    }
    metrics.text
}

fn parts(about: &str) -> (&str, &str, &str) {
    let (name, rest) = about.split_once(' ').unwrap_or_default();
    let (kind, help) = rest.split_once(' ').unwrap_or_default();
    (name, kind, help)
}
