//! What is measured while a rank works: metrics in Prometheus' text format 0.0.4, and quantiles of
//! latencies in constant memory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use jobs::journal::Quantiles;

/// Metrics whose names begin with `prefix`.
#[derive(Debug)]
pub struct Metrics {
    prefix: &'static str,
    /// The metrics as text.
    pub text: String,
}

impl Metrics {
    /// Creates an empty set of metrics.
    pub fn new(prefix: &'static str) -> Self {
        Self {
            prefix,
            text: String::new(),
        }
    }

    /// Adds a metric with one value.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help, [(String::new(), value)]);
    }

    /// Adds a metric with one value for each value of a label.
    pub fn by<L: std::fmt::Display>(
        &mut self,
        label: &str,
        (name, kind, help): (&str, &str, &str),
        values: impl IntoIterator<Item = (L, f64)>,
    ) {
        let lines = values
            .into_iter()
            .map(|(of, value)| (format!("{{{label}=\"{of}\"}}"), value));
        self.family(name, kind, help, lines);
    }

    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        lines: impl IntoIterator<Item = (String, f64)>,
    ) {
        let Self { prefix, text } = self;
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "# HELP {prefix}{name} {help}\n# TYPE {prefix}{name} {kind}\n"
        );
        for (labels, value) in lines {
            let _ = writeln!(text, "{prefix}{name}{labels} {value}");
        }
    }
}

/// Ratio of the limits of a bucket: values within one differ by at most 2 %.
const GROWTH: f64 = 1.02;

/// A histogram of durations with logarithmic buckets of 2 %.
#[derive(Clone, Debug, Default)]
pub struct Latency {
    buckets: BTreeMap<i32, u64>,
    /// Number of counted durations.
    pub count: u64,
}

impl Latency {
    /// Counts one duration.
    pub fn add(&mut self, took: Duration) {
        let micros = took.as_secs_f64() * 1e6;
        let bucket = if micros < 1.0 {
            0
        } else {
            (micros.ln() / GROWTH.ln()).round() as i32
        };
        *self.buckets.entry(bucket).or_default() += 1;
        self.count += 1;
    }

    /// Returns a histogram of the durations in both `self` and `other`.
    pub fn with(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (bucket, count) in &other.buckets {
            *both.buckets.entry(*bucket).or_default() += count;
        }
        both.count += other.count;
        both
    }

    /// Returns the median and the 95th percentile in milliseconds, each within 1 %.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles {
            p50: self.quantile(0.5),
            p95: self.quantile(0.95),
        }
    }

    /// Returns the quantile `q` in milliseconds, within 1 %: the duration that a share `q` of all
    /// does not exceed.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let rank = (q * self.count as f64).ceil() as u64;
        let mut seen = 0;
        let (bucket, _) = self.buckets.iter().find(|(_, count)| {
            seen += **count;
            seen >= rank
        })?;
        Some(GROWTH.powi(*bucket) / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|millis| latency.add(Duration::from_millis(millis)));
        let Quantiles { p50, p95 } = latency.quantiles();
        assert!((490.0..510.0).contains(&p50.unwrap()), "{p50:?}");
        assert!((930.0..970.0).contains(&p95.unwrap()), "{p95:?}");
        assert_eq!(Latency::default().quantile(0.5), None, "of nothing");
    }
}
