//! The state of a run as numbers for Prometheus, `GET /metrics`: text format 0.0.4.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tiny_http::{Header, Response, Server};

use crate::eval::view::{RankView, Snapshot};
use crate::prometheus::Metrics;

/// Name, type, help and value of a number that each rank has.
type PerRank = (&'static str, &'static str, &'static str, fn(&RankView) -> f64);

/// Answers on a port for as long as the process lives.
pub struct Exporter {
    text: Arc<Mutex<String>>,
}

impl Exporter {
    /// Listens on `port` of all addresses.
    ///
    /// # Errors
    /// A port that is taken or not allowed.
    pub fn listen(port: u16) -> io::Result<Self> {
        let server = Server::http(("0.0.0.0", port)).map_err(io::Error::other)?;
        let text = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&text);
        thread::Builder::new().name("metrics".to_owned()).spawn(move || serve(&server, &shown))?;
        Ok(Self { text })
    }

    /// What is answered from now on.
    pub fn show(&self, snapshot: &Snapshot) {
        *self.text.lock().unwrap_or_else(PoisonError::into_inner) = render(snapshot);
    }
}

fn serve(server: &Server, text: &Mutex<String>) {
    let header = Header::from_bytes("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    for request in server.incoming_requests() {
        let answer = match request.url() {
            "/metrics" | "/" => {
                let text = text.lock().unwrap_or_else(PoisonError::into_inner).clone();
                header.iter().cloned().fold(Response::from_string(text), Response::with_header)
            }
            _ => Response::from_string("rrun: /metrics is here\n").with_status_code(404),
        };
        // Who asked has gone.
        let _ = request.respond(answer);
    }
}

fn render(snapshot: &Snapshot) -> String {
    let mut metrics = Metrics::new("rrun_");
    let mut one = |name: &str, kind: &str, help: &str, value: f64| metrics.one(name, kind, help, value);
    let failed = snapshot.done.saturating_sub(snapshot.solved + snapshot.errors);
    if let Some(expected) = snapshot.expected {
        one("episodes_expected", "gauge", "Episodes that the jobs ask for.", expected as f64);
    }
    one(
        "episodes_solved",
        "gauge",
        "Episodes that ended in success, earlier launches included.",
        snapshot.solved as f64,
    );
    one("episodes_failed", "gauge", "Episodes that ended without success or error.", failed as f64);
    one("episodes_errored", "gauge", "Episodes that an error ended.", snapshot.errors as f64);
    one("episodes_per_second", "gauge", "Episodes a second over the last minute.", snapshot.rate);
    if let Some(left) = snapshot.left {
        one("left_seconds", "gauge", "Time until the last rank is done, at the present rates.", left.as_secs_f64());
    }
    one("jobs_done", "gauge", "Jobs, or parts of them, that ranks have ended.", snapshot.jobs_done as f64);
    let ranks: [PerRank; 7] = [
        ("rank_steps_total", "counter", "Steps of a rank's environments.", |rank| rank.beat.steps as f64),
        ("rank_episodes_total", "counter", "Episodes that a rank has ended.", |rank| rank.beat.ended as f64),
        ("rank_sim_busy_ratio", "gauge", "Share of time in which environments were at work.", |rank| rank.sim_busy),
        ("rank_infer_busy_ratio", "gauge", "Share of time in which the policy inferred.", |rank| rank.infer_busy),
        ("rank_arrived", "gauge", "1 when a rank has nothing left to do.", |rank| {
            f64::from(u8::from(rank.beat.arrived))
        }),
        ("rank_gpu_used_bytes", "gauge", "Memory of a rank's GPU that is taken.", |rank| rank.beat.gpu_used as f64),
        ("rank_gpu_total_bytes", "gauge", "Memory of a rank's GPU.", |rank| rank.beat.gpu_total as f64),
    ];
    for (name, kind, help, value) in ranks {
        metrics.by("rank", (name, kind, help), snapshot.ranks.iter().map(value).enumerate());
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

    use crate::eval::beat::Beat;
    use crate::eval::meter::GpuBusy;
    use crate::eval::now;
    use crate::eval::view::{Before, View};

    #[test]
    fn a_gpu_is_busy_where_its_driver_tells_and_there_alone() {
        let mut view = View::new(Before::default(), 2);
        let text = render(&view.on(&[Beat::default(), Beat::default()], now()));
        assert!(!text.contains("rank_gpu_busy_ratio"), "{text}");
        let gpu_busy = Some(GpuBusy { busy_s: 1.0, seen_s: 4.0 });
        let text = render(&view.on(&[Beat::default(), Beat { gpu_busy, ..Beat::default() }], now()));
        let lines: Vec<_> = text.lines().filter(|line| line.starts_with("rrun_rank_gpu_busy_ratio")).collect();
        assert_eq!(lines, ["rrun_rank_gpu_busy_ratio{rank=\"1\"} 0.25"]);
    }

    #[test]
    fn numbers_are_answered_over_http() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let exporter = Exporter::listen(port).unwrap();
        let mut view = View::new(Before { expected: Some(9), ..Before::default() }, 2);
        let beat = Beat { ended: 2, ended_solved: 1, steps: 7, ..Beat::default() };
        exporter.show(&view.on(&[beat, Beat::default()], now()));
        let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/plain; version=0.0.4"), "{answer}");
        for line in ["rrun_episodes_expected 9", "rrun_episodes_failed 1", "rrun_rank_steps_total{rank=\"0\"} 7"] {
            assert!(answer.lines().any(|found| found == line), "{line}: {answer}");
        }
    }
}
