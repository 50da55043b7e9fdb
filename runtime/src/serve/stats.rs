//! Counters and latencies of a server, for Prometheus and the log.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::metrics::{Latency, Metrics};
use crate::serve::request::RequestError;

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

/// What is counted beside the requests of each endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// A request that was answered with an error.
    Error,
    /// A message that could not be read.
    Unreadable,
    /// A request without the right token.
    Unauthorized,
    /// A request that was refused because the queue was full, the decoder too busy, or the server
    /// stopping.
    Refused,
    /// A request that exceeded a limit.
    Limit,
    /// An accepted connection.
    Connection,
    /// A connection that was closed for another one, or turned away.
    Evicted,
    /// A connection that was closed for a protocol violation or for the memory it held.
    Violation,
    /// A batch that went to the policy.
    Batch,
    /// A row in these batches.
    Row,
}

/// The counters and latencies.
#[derive(Debug, Default)]
pub struct Stats {
    requests: BTreeMap<&'static str, u64>,
    counts: BTreeMap<Counted, u64>,
    queued: usize,
    /// Latencies from the whole request to its answer, in the queue, and of one batch.
    total: Recent,
    waits: Recent,
    inferences: Recent,
}

/// Latencies of the last one to two windows.
#[derive(Debug, Default)]
struct Recent {
    since: Option<Instant>,
    now: Latency,
    before: Latency,
}

impl Stats {
    /// Counts a request for an endpoint.
    pub fn asked(&mut self, endpoint: &str) {
        let mut names = ENDPOINTS.into_iter();
        let name = names.find(|name| *name == endpoint).unwrap_or("unknown");
        *self.requests.entry(name).or_default() += 1;
    }

    /// Counts something once.
    pub fn count(&mut self, what: Counted) {
        self.add(what, 1);
    }

    /// Counts an answered request and its latency.
    pub fn answered(&mut self, took: Duration, outcome: &Result<(), RequestError>, now: Instant) {
        if let Err(err) = outcome {
            self.count(Counted::Error);
            err.counted.into_iter().for_each(|why| self.count(why));
        }
        self.total.add(took, now);
    }

    /// Sets the number of requests in the queue.
    pub fn queued(&mut self, queued: usize) {
        self.queued = queued;
    }

    /// Counts a batch that goes to the policy; `waits` are the times that its requests have waited.
    pub fn batch(&mut self, rows: usize, waits: &[Duration], now: Instant) {
        self.count(Counted::Batch);
        self.add(Counted::Row, rows as u64);
        waits.iter().for_each(|wait| self.waits.add(*wait, now));
    }

    /// Counts the duration of a batch.
    pub fn inferred(&mut self, took: Duration, now: Instant) {
        self.inferences.add(took, now);
    }

    /// Returns how many requests there were, and a line about them for the log.
    pub fn summary(&self) -> (u64, String) {
        let requests = self.requests.values().sum();
        let fill = self.of(Counted::Row) / self.of(Counted::Batch).max(1.0);
        let milliseconds = |ms: Option<f64>| ms.map_or("-".to_owned(), |ms| format!("{ms:.1}"));
        let [p50, p95, p99] = self.total.quantiles().map(milliseconds);
        let line = format!(
            "{requests} requests, {} errors, {fill:.1} rows per batch, {} queued; lately \
             p50 {p50} ms, p95 {p95} ms, p99 {p99} ms",
            self.of(Counted::Error),
            self.queued,
        );
        (requests, line)
    }

    /// Returns all metrics in Prometheus' text format 0.0.4.
    pub fn render(&self, connected: usize) -> String {
        let mut metrics = Metrics::new("rrun_serve_");
        let requests = self.requests.iter();
        let requests = requests.map(|(name, count)| (*name, *count as f64));
        let about = ("requests_total", "counter", "Requests by endpoint.");
        metrics.by("endpoint", about, requests);
        let reasons = |reasons: &[(&'static str, Counted)]| {
            let count = |(reason, what): &(_, _)| (*reason, self.of(*what));
            reasons.iter().map(count).collect::<Vec<_>>()
        };
        let help = "Requests that were answered with an error.";
        metrics.one("errors_total", "counter", help, self.of(Counted::Error));
        let rejected = reasons(&[
            ("unreadable", Counted::Unreadable),
            ("unauthorized", Counted::Unauthorized),
            ("refused", Counted::Refused),
            ("limit", Counted::Limit),
        ]);
        let help = "Requests that reached no policy, by reason.";
        metrics.by("reason", ("rejected_total", "counter", help), rejected);
        let (help, count) = ("Open connections.", connected as f64);
        metrics.one("connections", "gauge", help, count);
        let (help, count) = ("Connections since the start.", self.of(Counted::Connection));
        metrics.one("connections_total", "counter", help, count);
        let closed = [
            ("evicted", Counted::Evicted),
            ("violation", Counted::Violation),
        ];
        let help = "Connections that the server closed, by reason.";
        metrics.by(
            "reason",
            ("closed_total", "counter", help),
            reasons(&closed),
        );
        let help = "Requests that wait for the policy.";
        metrics.one("queue_length", "gauge", help, self.queued as f64);
        let count = self.of(Counted::Batch);
        metrics.one("batches_total", "counter", "Batches inferred.", count);
        let help = "Observations inferred; by batches it is the fill.";
        metrics.one("rows_total", "counter", help, self.of(Counted::Row));
        let total = "From a whole request to its answer, last minute or two.";
        let waits = "In the queue, last minute or two.";
        let batch = "Of one batch, last minute or two.";
        for (name, help, recent) in [
            ("request_seconds", total, &self.total),
            ("wait_seconds", waits, &self.waits),
            ("inference_seconds", batch, &self.inferences),
        ] {
            let quantiles = ["0.5", "0.95", "0.99"].into_iter().zip(recent.quantiles());
            let seconds = quantiles.filter_map(|(q, ms)| Some((q, ms? / 1e3)));
            metrics.by("quantile", (name, "summary", help), seconds);
        }
        metrics.text
    }

    fn add(&mut self, what: Counted, count: u64) {
        *self.counts.entry(what).or_default() += count;
    }

    fn of(&self, what: Counted) -> f64 {
        self.counts.get(&what).copied().unwrap_or_default() as f64
    }
}

impl Recent {
    fn add(&mut self, took: Duration, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if now.saturating_duration_since(since) >= WINDOW {
            self.before = std::mem::take(&mut self.now);
            self.since = Some(now);
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
    use crate::clock::now;

    #[test]
    fn numbers_are_rendered_and_old_ones_are_forgotten() {
        let start = now();
        let mut stats = Stats::default();
        stats.asked("get_action");
        stats.asked("../../etc/passwd");
        stats.batch(6, &[Duration::from_millis(2)], start);
        stats.answered(Duration::from_secs(9), &Ok(()), start);
        for minute in 1..=3 {
            let error = RequestError::rejected(Counted::Limit, "too much");
            stats.answered(
                Duration::from_millis(10),
                &Err(error),
                start + WINDOW * minute,
            );
        }
        let text = stats.render(3);
        for line in [
            "rrun_serve_requests_total{endpoint=\"get_action\"} 1",
            "rrun_serve_requests_total{endpoint=\"unknown\"} 1",
            "rrun_serve_errors_total 3",
            "rrun_serve_rejected_total{reason=\"limit\"} 3",
            "rrun_serve_connections 3",
            "rrun_serve_rows_total 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        let (requests, line) = stats.summary();
        assert_eq!(requests, 2);
        let wanted = "2 requests, 3 errors, 6.0 rows per batch, 0 queued; lately p50 10";
        assert!(line.starts_with(wanted), "{line}");
    }
}
