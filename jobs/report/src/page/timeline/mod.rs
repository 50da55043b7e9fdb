//! Shows ranks over time: when each was alive, when it ran jobs, and where it died.
//!
//! ```text
//! rank 0   ▒▓▓▓▓▓▓█████▓▓▓▓▓✕  ▒▓▓▓▓███████▒▒▒▒   busy 87.0 %, died once
//! ```
//! Jobs that are too short to be seen are drawn together, darker the busier the rank was.

use std::collections::BTreeSet;

use jobs::count::times;
use jobs::format;
use maud::{Markup, html};

use crate::page::chart::{place, ruler};
use crate::page::clock::{Zone, millis};
use crate::page::parts::{chosen, clip, cut, name};
use crate::{HowEnded, JobSpan, RankReport, Report};

/// Maximum number of ranks shown.
const MOST_RANKS: usize = 64;

/// Maximum number of shapes drawn, over all ranks.
const MOST_PIECES: f64 = 12_000.0;

/// Minimum width of a separate shape in percent: two pixels of a wide page.
const LEAST: f64 = 0.25;

/// Maximum number of ticks of the axis: as many as fit on a phone.
const MOST_TICKS: i64 = 5;

/// The time span of the page, and what else all lanes share.
struct Timeline<'a> {
    /// Begin and end, in milliseconds since 1970.
    from_ms: i64,
    to_ms: i64,
    /// Width up to which jobs are joined, in percent.
    least: f64,
    /// Whether the folder was merged, so that several runs have ranks of the same number.
    is_merged: bool,
    zone: &'a Zone,
}

impl<'a> Timeline<'a> {
    /// Spans all times of a report; without any it is empty.
    fn of(report: &Report, shown: usize, zone: &'a Zone) -> Self {
        let mut seen = BTreeSet::new();
        let moments = report.per_rank.iter().flat_map(moments);
        Self {
            from_ms: moments.clone().min().unwrap_or(1),
            to_ms: moments.max().unwrap_or(0),
            least: LEAST.max(shown as f64 * 100.0 / MOST_PIECES),
            is_merged: report.per_rank.iter().any(|rank| !seen.insert(rank.rank)),
            zone,
        }
    }

    /// Returns positions at round times, and their labels.
    fn ticks(&self) -> Vec<(f64, String)> {
        let ticks = self.zone.ticks(self.from_ms, self.to_ms, MOST_TICKS);
        let ticks = ticks.into_iter();
        ticks.map(|(at, label)| (self.place(at), label)).collect()
    }

    /// Returns the positions of two times, in percent of the width.
    fn places(&self, from: &str, to: &str) -> Option<[f64; 2]> {
        let (from, to) = (self.place(millis(from)?), self.place(millis(to)?));
        Some([from, to.max(from)])
    }

    fn place(&self, at_ms: i64) -> f64 {
        (at_ms - self.from_ms) as f64 / (self.to_ms - self.from_ms).max(1) as f64 * 100.0
    }

    /// Computes the shapes of the jobs of a rank.
    fn bars<'b>(&self, rank: &'b RankReport) -> Vec<JobBar<'b>> {
        let mut bars: Vec<JobBar> = Vec::new();
        for span in &rank.spans {
            let Some([from, to]) = self.places(&span.started, &span.ended) else {
                continue;
            };
            let failed = span.error.is_some();
            match bars.last_mut() {
                Some(last) if last.to - last.from < self.least && from < last.from + self.least => {
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
}

/// One job, or several jobs that would be too narrow.
#[derive(Debug)]
struct JobBar<'a> {
    from: f64,
    to: f64,
    /// Number of jobs.
    jobs: u64,
    /// Whether one of the jobs failed.
    failed: bool,
    first: &'a JobSpan,
    ended: &'a str,
    /// Width that was in jobs.
    filled: f64,
}

impl JobBar<'_> {
    /// Returns the share of the width that was in jobs.
    fn busy(&self) -> f64 {
        (self.filled / (self.to - self.from).max(1e-9)).min(1.0)
    }
}

pub(super) const NAMES: [&str; 3] = ["ranks", "Ranks", "Ranks over time"];

pub(super) fn section(report: &Report, zone: &Zone) -> Markup {
    if report.per_rank.is_empty() {
        return html! { p.lead { "No rank has left a journal." } };
    }
    let shown = chosen(&report.per_rank, MOST_RANKS, |rank| rank.deaths > 0);
    let timeline = Timeline::of(report, shown.len(), zone);
    html! {
        (lead(report))
        div.lanes {
            div.lane.axis aria-hidden="true" {
                span.who { (zone.name()) }
                (ruler(timeline.ticks()))
                span {}
            }
            @for rank in &shown { (lane(rank, &timeline)) }
        }
        p.legend {
            span { span.dot.busy {} "in a job" } span { span.dot.idle {} "alive, waiting" }
            span { span.dot.failed {} "in an attempt that failed" } span { span.dot.death {} "died" }
            span.muted { "Times are " (zone.name()) "." }
        }
        (cut(report.per_rank.len() - shown.len()))
    }
}

fn lead(report: &Report) -> Markup {
    let seconds = |part: fn(&RankReport) -> f64| report.per_rank.iter().map(part).sum::<f64>();
    let (busy, idle) = (seconds(|rank| rank.busy_s), seconds(|rank| rank.idle_s));
    let sum = |part: fn(&RankReport) -> u64| {
        let parts = report.per_rank.iter().map(part);
        parts.fold(0, u64::saturating_add)
    };
    let (deaths, restarts) = (sum(|rank| rank.deaths), sum(|rank| rank.restarts));
    html! {
        p.lead {
            @if busy + idle > 0.0 {
                "Ranks that came to an end were in jobs for " b { (format::percent(busy / (busy + idle))) }
                " of their time (" (format::seconds(busy)) " of " (format::seconds(busy + idle)) ")."
            }
            " " (format::counted(deaths, "death", "deaths")) ", " (format::counted(restarts, "restart", "restarts")) "."
        }
    }
}

/// Returns all times of a rank.
fn moments(rank: &RankReport) -> impl Iterator<Item = i64> + Clone + '_ {
    let lives = rank.lives.iter().map(|life| [&life.started, &life.ended]);
    let spans = rank.spans.iter().map(|span| [&span.started, &span.ended]);
    lives.chain(spans).flatten().filter_map(|at| millis(at))
}

fn lane(rank: &RankReport, timeline: &Timeline) -> Markup {
    html! {
        div.lane {
            span.who {
                b { "rank " (rank.rank) }
                small {
                    @if timeline.is_merged { (name(&rank.journal)) " · " }
                    (clip(&rank.host, 40)) " · " (rank.device)
                }
            }
            svg.time width="100%" height="20" role="img" aria-label={ "rank " (rank.rank) " over time" } {
                (drawn(rank, timeline))
                @for (at, _) in timeline.ticks() {
                    line.tick x1=(place(at)) x2=(place(at)) y1="0" y2="20" {}
                }
            }
            span.figures {
                span.numbers {
                    @if let Some(busy) = rank.busy() { b { (format::percent(busy)) } " busy, " }
                    (format::counted(rank.episodes, "episode", "episodes"))
                    @if rank.deaths > 0 { span.bad { ", died " (times(rank.deaths)) } }
                    @else if rank.starts > 1 { ", started " (times(rank.starts)) }
                }
            }
        }
    }
}

fn drawn(rank: &RankReport, timeline: &Timeline) -> Markup {
    let width = |from: f64, to: f64| place((to - from).max(0.08));
    let lives = rank.lives.iter();
    let lives = lives.filter_map(|life| Some((life, timeline.places(&life.started, &life.ended)?)));
    html! {
        @for (_, [from, to]) in lives.clone() {
            rect.life x=(place(from)) y="4" width=(width(from, to)) height="12" {}
        }
        @for (at, bar) in timeline.bars(rank).iter().enumerate() {
            // Adjacent ones differ in color.
            @let class = match (bar.failed, at % 2) { (true, _) => "job failed", (_, 1) => "job odd", _ => "job" };
            rect class=(class) x=(place(bar.from)) y="4" width=(width(bar.from, bar.to)) height="12"
                fill-opacity=[(bar.busy() < 0.995).then(|| format!("{:.2}", bar.busy().max(0.2)))] {
                title { (story(bar, timeline.zone)) }
            }
        }
        @for (life, [_, to]) in lives.filter(|(life, _)| life.end == HowEnded::Died) {
            line.death x1=(place(to)) x2=(place(to)) y1="0" y2="20" { title { "died after " (timeline.zone.time(&life.ended)) } }
        }
    }
}

fn story(bar: &JobBar, zone: &Zone) -> String {
    let (job, first) = (clip(&bar.first.job, 60), zone.time(&bar.first.started));
    let when = format!("{first} to {}", zone.time(bar.ended));
    match (bar.jobs, bar.first.error.as_deref()) {
        (1, Some(error)) => format!("{job}, {when}: {}", clip(error, 120)),
        (1, None) => format!("{job}, {when}"),
        (jobs, _) => format!("{} jobs from {job} on, {when}", format::count(jobs)),
    }
}

#[cfg(test)]
mod tests;
