//! Computes the shapes of one rank: times become positions, and narrow shapes are joined.

use crate::page::clock::millis;
use crate::{HowEnded, JobSpan, LifeReport, RankReport};

/// The time span shown on the page, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeWindow {
    pub(super) from_ms: i64,
    pub(super) to_ms: i64,
}

impl TimeWindow {
    /// Returns the span from the first to the last time; `None` without any.
    pub(super) fn around(moments: impl Iterator<Item = i64>) -> Option<Self> {
        moments.fold(None, |window, at| match window {
            None => Some(Self {
                from_ms: at,
                to_ms: at,
            }),
            Some(Self { from_ms, to_ms }) => Some(Self {
                from_ms: from_ms.min(at),
                to_ms: to_ms.max(at),
            }),
        })
    }

    /// Returns the position of a time, in percent of the width.
    pub(super) fn place(&self, at_ms: i64) -> f64 {
        (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64 * 100.0
    }

    fn place_of(&self, at: &str) -> Option<f64> {
        Some(self.place(millis(at)?))
    }
}

/// The shapes of one rank, in percent of the width.
#[derive(Debug)]
pub(super) struct RankLane<'a> {
    pub(super) lives: Vec<Alive<'a>>,
    pub(super) pieces: Vec<JobBar<'a>>,
}

/// One life of the rank.
#[derive(Debug)]
pub(super) struct Alive<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    pub(super) ended: &'a str,
    pub(super) end: HowEnded,
}

/// One job, or several jobs that would be too narrow.
#[derive(Debug)]
pub(super) struct JobBar<'a> {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Share of the width that was in jobs.
    pub(super) busy: f64,
    /// Number of jobs.
    pub(super) jobs: u64,
    /// Whether one of the jobs failed.
    pub(super) failed: bool,
    /// Whether the shape has an odd index, so that adjacent ones can differ in color.
    pub(super) is_odd: bool,
    pub(super) first: &'a JobSpan,
    pub(super) started: &'a str,
    pub(super) ended: &'a str,
    /// Width that was in jobs.
    filled: f64,
}

impl<'a> RankLane<'a> {
    /// Computes the shapes of a rank. `least` is the width up to which jobs are joined, in percent.
    pub(super) fn new(rank: &'a RankReport, window: &TimeWindow, least: f64) -> Self {
        let alive = |life: &'a LifeReport| {
            let (from, to) = (
                window.place_of(&life.started)?,
                window.place_of(&life.ended)?,
            );
            Some(Alive {
                from,
                to: to.max(from),
                ended: &life.ended,
                end: life.end,
            })
        };
        let mut pieces: Vec<JobBar> = Vec::new();
        for span in &rank.spans {
            let Some(piece) = JobBar::new(span, window, pieces.len() % 2 == 1) else {
                continue;
            };
            match pieces.last_mut() {
                Some(last) if last.to - last.from < least && piece.from < last.from + least => {
                    last.join(piece)
                }
                _ => pieces.push(piece),
            }
        }
        pieces.iter_mut().for_each(|piece| {
            piece.busy = (piece.filled / (piece.to - piece.from).max(1e-9)).min(1.0)
        });
        Self {
            lives: rank.lives.iter().filter_map(alive).collect(),
            pieces,
        }
    }
}

impl<'a> JobBar<'a> {
    fn new(span: &'a JobSpan, window: &TimeWindow, is_odd: bool) -> Option<Self> {
        let (from, to) = (
            window.place_of(&span.started)?,
            window.place_of(&span.ended)?,
        );
        let (to, failed) = (to.max(from), span.error.is_some());
        let (started, ended, filled) = (&span.started, &span.ended, to - from);
        Some(Self {
            from,
            to,
            busy: 1.0,
            jobs: 1,
            failed,
            is_odd,
            first: span,
            started,
            ended,
            filled,
        })
    }

    fn join(&mut self, next: Self) {
        self.jobs += 1;
        self.failed |= next.failed;
        self.filled += next.filled;
        if next.to >= self.to {
            (self.to, self.ended) = (next.to, next.ended);
        }
    }
}
