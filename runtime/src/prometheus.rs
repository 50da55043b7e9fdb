//! Writes metrics in Prometheus' text format 0.0.4.

use std::fmt::Write as _;

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
