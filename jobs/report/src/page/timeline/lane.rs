//! Computes where the jobs of a rank stand: times become positions, and narrow shapes are joined.

use crate::page::clock::{Zone, millis};
use crate::{JobSpan, RankReport};

/// The time span shown on the page, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeWindow {
    from_ms: i64,
    to_ms: i64,
}

impl TimeWindow {
    /// Returns the span from the first to the last time; without any it is empty.
    pub(super) fn around(moments: impl Iterator<Item = i64> + Clone) -> Self {
        Self {
            from_ms: moments.clone().min().unwrap_or(1),
            to_ms: moments.max().unwrap_or(0),
        }
    }

    /// Returns at most `most` positions at round times, and their labels.
    pub(super) fn ticks(&self, zone: &Zone, most: i64) -> Vec<(f64, String)> {
        let ticks = zone.ticks(self.from_ms, self.to_ms, most).into_iter();
        ticks.map(|(at, label)| (self.place(at), label)).collect()
    }

    /// Returns the positions of two times, in percent of the width.
    pub(super) fn places(&self, from: &str, to: &str) -> Option<[f64; 2]> {
        let (from, to) = (self.place(millis(from)?), self.place(millis(to)?));
        Some([from, to.max(from)])
    }

    fn place(&self, at_ms: i64) -> f64 {
        (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64 * 100.0
    }
}

/// One job, or several jobs that would be too narrow.
#[derive(Debug)]
pub(super) struct JobBar<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Number of jobs.
    pub(super) jobs: u64,
    /// Whether one of the jobs failed.
    pub(super) failed: bool,
    pub(super) first: &'a JobSpan,
    pub(super) ended: &'a str,
    /// Width that was in jobs.
    filled: f64,
}

impl JobBar<'_> {
    /// Returns the share of the width that was in jobs.
    pub(super) fn busy(&self) -> f64 {
        (self.filled / (self.to - self.from).max(1e-9)).min(1.0)
    }
}

/// Computes the shapes of a rank. `least` is the width up to which jobs are joined, in percent.
pub(super) fn bars<'a>(rank: &'a RankReport, window: &TimeWindow, least: f64) -> Vec<JobBar<'a>> {
    let mut bars: Vec<JobBar> = Vec::new();
    for span in &rank.spans {
        let Some([from, to]) = window.places(&span.started, &span.ended) else {
            continue;
        };
        let failed = span.error.is_some();
        match bars.last_mut() {
            Some(last) if last.to - last.from < least && from < last.from + least => {
                last.jobs += 1;
                last.failed |= failed;
                last.filled += to - from;
                if to >= last.to {
                    (last.to, last.ended) = (to, &span.ended);
                }
            }
            _ => bars.push(JobBar {
                from,
                to,
                jobs: 1,
                failed,
                first: span,
                ended: &span.ended,
                filled: to - from,
            }),
        }
    }
    bars
}
