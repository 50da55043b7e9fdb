//! What a server did so far, for Prometheus and for the log.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::eval::latency::Latency;
use crate::prometheus::Metrics;

/// Quantiles are of this and the last such time.
const WINDOW: Duration = Duration::from_secs(60);

/// Endpoints that are counted by name; strangers may ask for any.
const ENDPOINTS: [&str; 6] = ["get_action", "infer", "ping", "reset", "get_modality_config", "kill"];

/// Counts and times.
#[derive(Debug)]
pub struct Stats(Mutex<Counts>);

#[derive(Debug)]
struct Counts {
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
    /// From the whole request to its answer; in the queue; of one batch.
    total: Recent,
    waits: Recent,
    inferences: Recent,
}

/// Quantiles of the last one to two windows.
#[derive(Debug)]
struct Recent {
    since: Instant,
    now: Latency,
    before: Latency,
}

/// What is said in the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Requests that were answered with actions or an error.
    pub requests: u64,
    /// Errors among them.
    pub errors: u64,
    /// Rows of a batch, on average.
    pub fill: f64,
    /// Requests in the queue.
    pub queued: usize,
    /// Milliseconds from request to answer: median, 95 %, 99 %.
    pub quantiles: [Option<f64>; 3],
}

impl Stats {
    /// Nothing yet.
    pub fn new(now: Instant) -> Self {
        let recent = || Recent { since: now, now: Latency::default(), before: Latency::default() };
        Self(Mutex::new(Counts {
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

    /// A client asked for an endpoint.
    pub fn asked(&self, endpoint: &str) {
        let name = ENDPOINTS.into_iter().find(|name| *name == endpoint).unwrap_or("unknown");
        *self.counts().requests.entry(name).or_default() += 1;
    }

    /// A request was answered.
    pub fn answered(&self, took: Duration, is_error: bool, now: Instant) {
        let mut counts = self.counts();
        counts.errors += u64::from(is_error);
        counts.total.add(took, now);
    }

    /// A message could not be read.
    pub fn unreadable(&self) {
        self.counts().unreadable += 1;
    }

    /// A client did not know the token.
    pub fn unauthorized(&self) {
        self.counts().unauthorized += 1;
    }

    /// The queue was full, the decoder too busy, or the server is stopping.
    pub fn refused(&self) {
        self.counts().refused += 1;
    }

    /// A request exceeded a limit.
    pub fn limited(&self) {
        self.counts().limited += 1;
    }

    /// A connection was accepted; another one may have gone for it.
    pub fn connected(&self, evicted: bool) {
        let mut counts = self.counts();
        counts.connections += 1;
        counts.evicted += u64::from(evicted);
    }

    /// A connection was closed for what it said, or held.
    pub fn violated(&self) {
        self.counts().violations += 1;
    }

    /// Requests in the queue.
    pub fn queued(&self, queued: usize) {
        self.counts().queued = queued;
    }

    /// A batch goes to the policy; its requests have waited so long.
    pub fn batch(&self, rows: usize, waits: &[Duration], now: Instant) {
        let mut counts = self.counts();
        counts.batches += 1;
        counts.rows += rows as u64;
        waits.iter().for_each(|wait| counts.waits.add(*wait, now));
    }

    /// A batch came back from the policy.
    pub fn inferred(&self, took: Duration, now: Instant) {
        self.counts().inferences.add(took, now);
    }

    /// For the log.
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

    /// Prometheus' text format 0.0.4.
    pub fn render(&self, connected: usize) -> String {
        let counts = self.counts();
        let mut metrics = Metrics::new("rrun_serve_");
        let requests = counts.requests.iter().map(|(name, count)| (*name, *count as f64));
        metrics.by("endpoint", ("requests_total", "counter", "Requests by endpoint."), requests);
        metrics.one("errors_total", "counter", "Requests that were answered with an error.", counts.errors as f64);
        let refusals = [
            ("unreadable", counts.unreadable as f64),
            ("unauthorized", counts.unauthorized as f64),
            ("refused", counts.refused as f64),
            ("limit", counts.limited as f64),
        ];
        metrics.by("reason", ("rejected_total", "counter", "Requests that reached no policy, by reason."), refusals);
        metrics.one("connections", "gauge", "Open connections.", connected as f64);
        metrics.one("connections_total", "counter", "Connections since the start.", counts.connections as f64);
        let closed = [("evicted", counts.evicted as f64), ("violation", counts.violations as f64)];
        metrics.by("reason", ("closed_total", "counter", "Connections that the server closed, by reason."), closed);
        metrics.one("queue_length", "gauge", "Requests that wait for the policy.", counts.queued as f64);
        metrics.one("batches_total", "counter", "Batches inferred.", counts.batches as f64);
        metrics.one("rows_total", "counter", "Observations inferred; by batches it is the fill.", counts.rows as f64);
        let times = [
            ("request_seconds", "From a whole request to its answer, last minute or two.", &counts.total),
            ("wait_seconds", "In the queue, last minute or two.", &counts.waits),
            ("inference_seconds", "Of one batch, last minute or two.", &counts.inferences),
        ];
        for (name, help, recent) in times {
            let quantiles = ["0.5", "0.95", "0.99"].into_iter().zip(recent.quantiles());
            metrics.by("quantile", (name, "summary", help), quantiles.filter_map(|(q, ms)| Some((q, ms? / 1e3))));
        }
        metrics.into_text()
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let Summary { quantiles: [Some(p50), _, Some(p99)], .. } = stats.summary() else { panic!("there are times") };
        assert!(p50 > 9.0 && p99 < 11.0, "{p50} {p99}");
    }
}
