//! Counters and latencies of a server, for Prometheus and the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::latency::Latency;
use crate::prometheus::Metrics;

/// Length of a window; quantiles cover the current window and the previous one.
const WINDOW: Duration = Duration::from_secs(60);

/// Endpoints that are counted by name; all others count as `unknown`, because clients may send any
/// name.
const ENDPOINTS: [&str; 6] = [
    "get_action",
    "infer",
    "ping",
    "reset",
    "get_modality_config",
    "kill",
];

/// The counters and latencies, behind a lock.
#[derive(Debug)]
pub struct Stats(Mutex<ServerCounts>);

#[derive(Debug)]
struct ServerCounts {
    requests: BTreeMap<&'static str, u64>,
    errors: u64,
    unreadable: u64,
    unauthorized: u64,
    refused: u64,
    limited: u64,
    connections: u64,
    evicted: u64,
    violations: u64,
    queued: usize,
    batches: u64,
    rows: u64,
    /// Latencies from the whole request to its answer, in the queue, and of one batch.
    total: Recent,
    waits: Recent,
    inferences: Recent,
}

/// Latencies of the last one to two windows.
#[derive(Debug)]
struct Recent {
    since: Instant,
    now: Latency,
    before: Latency,
}

/// The numbers for the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of requests that were answered with actions or an error.
    pub requests: u64,
    /// Number of errors among them.
    pub errors: u64,
    /// Average number of rows in a batch.
    pub fill: f64,
    /// Number of requests in the queue.
    pub queued: usize,
    /// Milliseconds from request to answer: median, 95th and 99th percentile.
    pub quantiles: [Option<f64>; 3],
}

impl Stats {
    /// Creates counters at zero.
    pub fn new(now: Instant) -> Self {
        let recent = || Recent {
            since: now,
            now: Latency::default(),
            before: Latency::default(),
        };
        Self(Mutex::new(ServerCounts {
            requests: BTreeMap::new(),
            errors: 0,
            unreadable: 0,
            unauthorized: 0,
            refused: 0,
            limited: 0,
            connections: 0,
            evicted: 0,
            violations: 0,
            queued: 0,
            batches: 0,
            rows: 0,
            total: recent(),
            waits: recent(),
            inferences: recent(),
        }))
    }

    /// Counts a request for an endpoint.
    pub fn asked(&self, endpoint: &str) {
        let name = ENDPOINTS
            .into_iter()
            .find(|name| *name == endpoint)
            .unwrap_or("unknown");
        *self.counts().requests.entry(name).or_default() += 1;
    }

    /// Counts an answered request and its latency.
    pub fn answered(&self, took: Duration, is_error: bool, now: Instant) {
        let mut counts = self.counts();
        counts.errors += u64::from(is_error);
        counts.total.add(took, now);
    }

    /// Counts a message that could not be read.
    pub fn unreadable(&self) {
        self.counts().unreadable += 1;
    }

    /// Counts a request without the right token.
    pub fn unauthorized(&self) {
        self.counts().unauthorized += 1;
    }

    /// Counts a request that was refused because the queue was full, the decoder too busy, or the
    /// server stopping.
    pub fn refused(&self) {
        self.counts().refused += 1;
    }

    /// Counts a request that exceeded a limit.
    pub fn limited(&self) {
        self.counts().limited += 1;
    }

    /// Counts an accepted connection; `evicted` says that another one was closed for it, or that it
    /// was turned away.
    pub fn connected(&self, evicted: bool) {
        let mut counts = self.counts();
        counts.connections += 1;
        counts.evicted += u64::from(evicted);
    }

    /// Counts a connection that was closed for a protocol violation or for the memory it held.
    pub fn violated(&self) {
        self.counts().violations += 1;
    }

    /// Sets the number of requests in the queue.
    pub fn queued(&self, queued: usize) {
        self.counts().queued = queued;
    }

    /// Counts a batch that goes to the policy; `waits` are the times that its requests have waited.
    pub fn batch(&self, rows: usize, waits: &[Duration], now: Instant) {
        let mut counts = self.counts();
        counts.batches += 1;
        counts.rows += rows as u64;
        waits.iter().for_each(|wait| counts.waits.add(*wait, now));
    }

    /// Counts the duration of a batch.
    pub fn inferred(&self, took: Duration, now: Instant) {
        self.counts().inferences.add(took, now);
    }

    /// Returns the numbers for the log.
    pub fn summary(&self) -> Summary {
        let counts = self.counts();
        Summary {
            requests: counts.requests.values().sum(),
            errors: counts.errors,
            fill: counts.rows as f64 / (counts.batches as f64).max(1.0),
            queued: counts.queued,
            quantiles: counts.total.quantiles(),
        }
    }

    /// Returns all metrics in Prometheus' text format 0.0.4.
    pub fn render(&self, connected: usize) -> String {
        let counts = self.counts();
        let mut metrics = Metrics::new("rrun_serve_");
        counts.render_requests(&mut metrics);
        counts.render_connections(connected, &mut metrics);
        counts.render_batches(&mut metrics);
        counts.render_latencies(&mut metrics);
        metrics.into_text()
    }

    fn counts(&self) -> MutexGuard<'_, ServerCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServerCounts {
    fn render_requests(&self, metrics: &mut Metrics) {
        let requests = self
            .requests
            .iter()
            .map(|(name, count)| (*name, *count as f64));
        metrics.by(
            "endpoint",
            ("requests_total", "counter", "Requests by endpoint."),
            requests,
        );
        metrics.one(
            "errors_total",
            "counter",
            "Requests that were answered with an error.",
            self.errors as f64,
        );
        let refusals = [
            ("unreadable", self.unreadable as f64),
            ("unauthorized", self.unauthorized as f64),
            ("refused", self.refused as f64),
            ("limit", self.limited as f64),
        ];
        metrics.by(
            "reason",
            (
                "rejected_total",
                "counter",
                "Requests that reached no policy, by reason.",
            ),
            refusals,
        );
    }

    fn render_connections(&self, connected: usize, metrics: &mut Metrics) {
        metrics.one(
            "connections",
            "gauge",
            "Open connections.",
            connected as f64,
        );
        metrics.one(
            "connections_total",
            "counter",
            "Connections since the start.",
            self.connections as f64,
        );
        let closed = [
            ("evicted", self.evicted as f64),
            ("violation", self.violations as f64),
        ];
        metrics.by(
            "reason",
            (
                "closed_total",
                "counter",
                "Connections that the server closed, by reason.",
            ),
            closed,
        );
    }

    fn render_batches(&self, metrics: &mut Metrics) {
        metrics.one(
            "queue_length",
            "gauge",
            "Requests that wait for the policy.",
            self.queued as f64,
        );
        metrics.one(
            "batches_total",
            "counter",
            "Batches inferred.",
            self.batches as f64,
        );
        metrics.one(
            "rows_total",
            "counter",
            "Observations inferred; by batches it is the fill.",
            self.rows as f64,
        );
    }

    fn render_latencies(&self, metrics: &mut Metrics) {
        let times = [
            (
                "request_seconds",
                "From a whole request to its answer, last minute or two.",
                &self.total,
            ),
            (
                "wait_seconds",
                "In the queue, last minute or two.",
                &self.waits,
            ),
            (
                "inference_seconds",
                "Of one batch, last minute or two.",
                &self.inferences,
            ),
        ];
        for (name, help, recent) in times {
            let quantiles = ["0.5", "0.95", "0.99"].into_iter().zip(recent.quantiles());
            metrics.by(
                "quantile",
                (name, "summary", help),
                quantiles.filter_map(|(q, ms)| Some((q, ms? / 1e3))),
            );
        }
    }
}

impl Recent {
    fn add(&mut self, took: Duration, now: Instant) {
        if now.saturating_duration_since(self.since) >= WINDOW {
            self.before = std::mem::take(&mut self.now);
            self.since = now;
        }
        self.now.add(took);
    }

    fn quantiles(&self) -> [Option<f64>; 3] {
        let both = self.before.with(&self.now);
        [0.5, 0.95, 0.99].map(|q| both.quantile(q))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rendered_and_old_ones_are_forgotten() {
        #[expect(clippy::disallowed_methods, reason = "some moment to count from")]
        let start = Instant::now();
        let stats = Stats::new(start);
        stats.asked("get_action");
        stats.asked("../../etc/passwd");
        stats.batch(6, &[Duration::from_millis(2)], start);
        stats.answered(Duration::from_secs(9), false, start);
        for minute in 1..=3 {
            stats.answered(Duration::from_millis(10), true, start + WINDOW * minute);
        }
        let text = stats.render(3);
        for line in [
            "rrun_serve_requests_total{endpoint=\"get_action\"} 1",
            "rrun_serve_requests_total{endpoint=\"unknown\"} 1",
            "rrun_serve_errors_total 3",
            "rrun_serve_connections 3",
            "rrun_serve_rows_total 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let Summary {
            quantiles: [Some(p50), _, Some(p99)],
            ..
        } = stats.summary()
        else {
            panic!("there are times")
        };
        assert!(p50 > 9.0 && p99 < 11.0, "{p50} {p99}");
    }
}
