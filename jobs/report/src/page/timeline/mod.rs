//! Shows ranks over time: when each was alive, when it ran jobs, and where it died.
//!
//! ```text
//! rank 0   ▒▓▓▓▓▓▓█████▓▓▓▓▓✕  ▒▓▓▓▓███████▒▒▒▒   busy 87.0 %, died once
//! ```
//! Jobs that are too short to be seen are drawn together, darker the busier the rank was.

use std::collections::BTreeSet;

use jobs::format;
use maud::{Markup, html};

use crate::page::chart::{place, ruler};
use crate::page::clock::{Zone, millis};
use crate::page::parts::{clip, cut, name};
use crate::{HowEnded, RankReport, Report};

mod lane;

use lane::{JobBar, RankLane, TimeWindow};

/// Maximum number of ranks shown.
const MOST_RANKS: usize = 64;

/// Maximum number of shapes drawn, over all ranks.
const MOST_PIECES: f64 = 12_000.0;

/// Minimum width of a separate shape in percent: two pixels of a wide page.
const LEAST: f64 = 0.25;

/// Maximum number of ticks of the axis: as many as fit on a phone.
const MOST_TICKS: i64 = 5;

/// Settings that all lanes share.
struct TimelineSettings<'a> {
    /// The time span shown; `None` for a report without times.
    window: Option<TimeWindow>,
    /// Width up to which jobs are joined, in percent.
    least: f64,
    /// Whether the folder was merged, so that several runs have ranks of the same number.
    is_merged: bool,
    zone: &'a Zone,
}

impl<'a> TimelineSettings<'a> {
    fn new(report: &Report, lanes: usize, zone: &'a Zone) -> Self {
        let mut seen = BTreeSet::new();
        Self {
            window: TimeWindow::around(report.per_rank.iter().flat_map(moments)),
            least: LEAST.max(lanes as f64 * 100.0 / MOST_PIECES),
            is_merged: report.per_rank.iter().any(|rank| !seen.insert(rank.rank)),
            zone,
        }
    }
}

pub(super) fn section(report: &Report, zone: &Zone) -> Markup {
    let shown = shown(report);
    let frame = TimelineSettings::new(report, shown.len(), zone);
    html! {
        @if report.per_rank.is_empty() {
            p.lead { "No rank has left a journal." }
        } @else {
            (lead(report))
            div.lanes {
                @if let Some(window) = &frame.window { (axis(window, zone)) }
                @for rank in &shown { (lane(rank, &frame)) }
            }
            @if frame.window.is_some() {
                p.legend {
                    span { span.dot.busy {} "in a job" } span { span.dot.idle {} "alive, waiting" }
                    span { span.dot.failed {} "in an attempt that failed" } span { span.dot.death {} "died" }
                    span.muted { "Times are " (zone.name()) "." }
                }
            }
            (cut(report.per_rank.len() - shown.len()))
        }
    }
}

fn lead(report: &Report) -> Markup {
    let (busy, idle) = report.per_rank.iter().fold((0.0, 0.0), |(b, i), rank| {
        (b + rank.busy_s, i + rank.idle_s.max(0.0))
    });
    let sum = |part: fn(&RankReport) -> u64| {
        report
            .per_rank
            .iter()
            .map(part)
            .fold(0, u64::saturating_add)
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

fn shown(report: &Report) -> Vec<&RankReport> {
    let (died, others): (Vec<_>, Vec<_>) = report
        .per_rank
        .iter()
        .enumerate()
        .partition(|(_, rank)| rank.deaths > 0);
    let mut shown: Vec<_> = died.into_iter().chain(others).take(MOST_RANKS).collect();
    shown.sort_by_key(|(at, _)| *at);
    shown.into_iter().map(|(_, rank)| rank).collect()
}

/// Returns all times of a rank.
fn moments(rank: &RankReport) -> impl Iterator<Item = i64> + '_ {
    let lives = rank
        .lives
        .iter()
        .flat_map(|life| [&life.started, &life.ended]);
    let spans = rank
        .spans
        .iter()
        .flat_map(|span| [&span.started, &span.ended]);
    lives.chain(spans).filter_map(|at| millis(at))
}

fn lane(rank: &RankReport, frame: &TimelineSettings) -> Markup {
    let whole = rank.busy_s + rank.idle_s.max(0.0);
    let busy = (whole > 0.0).then(|| rank.busy_s / whole);
    html! {
        div.lane {
            span.who {
                b { "rank " (rank.rank) }
                small {
                    @if frame.is_merged { (name(&rank.journal)) " · " }
                    (clip(&rank.host, 40)) " · " (rank.device)
                }
            }
            svg.time width="100%" height="20" role="img" aria-label={ "rank " (rank.rank) " over time" } {
                @match &frame.window {
                    Some(window) => {
                        (drawn(&RankLane::new(rank, window, frame.least), frame.zone))
                        @for (at, _) in frame.zone.ticks(window.from_ms, window.to_ms, MOST_TICKS) {
                            @let at = place(window.place(at));
                            line.tick x1=(at) x2=(at) y1="0" y2="20" {}
                        }
                    }
                    // A report without times still has the sums.
                    None => {
                        rect.life x="0" y="4" width="100%" height="12" {}
                        @if let Some(busy) = busy { rect.job x="0" y="4" width=(place(busy * 100.0)) height="12" {} }
                    }
                }
            }
            span.figures {
                span.numbers {
                    @if let Some(busy) = busy { b { (format::percent(busy)) } " busy, " }
                    (format::counted(rank.episodes, "episode", "episodes"))
                    @if rank.deaths > 0 { span.bad { ", died " (times(rank.deaths)) } }
                    @else if rank.starts > 1 { ", started " (times(rank.starts)) }
                }
            }
        }
    }
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        _ => format!("{} times", format::count(count)),
    }
}

fn drawn(lane: &RankLane, zone: &Zone) -> Markup {
    let width = |from: f64, to: f64| place((to - from).max(0.08));
    html! {
        @for life in &lane.lives {
            rect.life x=(place(life.from)) y="4" width=(width(life.from, life.to)) height="12" {}
        }
        @for piece in &lane.pieces {
            rect class=(class(piece)) x=(place(piece.from)) y="4" width=(width(piece.from, piece.to)) height="12"
                fill-opacity=[(piece.busy < 0.995).then(|| format!("{:.2}", piece.busy.max(0.2)))] {
                title { (story(piece, zone)) }
            }
        }
        @for life in lane.lives.iter().filter(|life| life.end == HowEnded::Died) {
            @let at = place(life.to);
            line.death x1=(at) x2=(at) y1="0" y2="20" { title { "died after " (zone.time(life.ended)) } }
        }
    }
}

fn class(piece: &JobBar) -> &'static str {
    match (piece.failed, piece.is_odd) {
        (true, _) => "job failed",
        (false, true) => "job odd",
        (false, false) => "job",
    }
}

fn story(piece: &JobBar, zone: &Zone) -> String {
    let when = format!("{} to {}", zone.time(piece.started), zone.time(piece.ended));
    match (piece.jobs, piece.first.error.as_deref()) {
        (1, Some(error)) => format!(
            "{}, {when}: {}",
            clip(&piece.first.job, 60),
            clip(error, 120)
        ),
        (1, None) => format!("{}, {when}", clip(&piece.first.job, 60)),
        (jobs, _) => format!(
            "{} jobs from {} on, {when}",
            format::count(jobs),
            clip(&piece.first.job, 60)
        ),
    }
}

fn axis(window: &TimeWindow, zone: &Zone) -> Markup {
    let ticks = zone
        .ticks(window.from_ms, window.to_ms, MOST_TICKS)
        .into_iter();
    html! {
        div.lane.axis aria-hidden="true" {
            span.who { (zone.name()) }
            (ruler(ticks.map(|(at, label)| (window.place(at), label)).collect()))
            span {}
        }
    }
}

#[cfg(test)]
mod tests;
