//! Renders a curve as `watch.html`, a single page in the style of `report.html`, without scripts.
//!
//! ```text
//! 100 % ┌───────────────┬──
//!       │        ┬  ●───●     a point is a rate, its line the 95 % Wilson interval
//!       │   ┬ ●──┴──┴   ┴
//!   0 % └───┴────┴──────────  training step
//! ```
//! Horizontal positions are percentages of the width, so that the plot is right at any width
//! without scaling. A content security policy allows the page's own styles by their hashes.

use maud::{DOCTYPE, Markup, html};

use crate::curve::{Curve, Point, Score};
use crate::page::document::{STYLE, head};
use jobs::format;

/// Rules in addition to [`STYLE`].
const CURVE_STYLE: &str = include_str!("style.css");

/// Content security policy with the SHA-256 of [`STYLE`] and [`CURVE_STYLE`] in base64. A test
/// compares them.
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; \
    style-src 'sha256-aXUcI/BBABDEx2+xieTVc5VjZ+6fWTvgw6JMKEfbyjo=' 'sha256-LUKPIVyXxluqXb13DtK3fhUT+rsL0zEGpbbrAWcER3U='";

/// Height of a plot in pixels, from 100 % to 0 %.
const HEIGHT: f64 = 200.0;

/// Most plots of single jobs.
const MOST_JOBS: usize = 24;

/// Most rows of the table; the last ones are shown.
const MOST_ROWS: usize = 500;

/// A point of a plot: the step, and the results there.
struct Mark<'a> {
    point: &'a Point,
    score: Score,
}

/// Renders the page.
pub(super) fn render(curve: &Curve) -> String {
    let title = curve.jobs_file.rsplit('/').next().unwrap_or_default();
    let document = html! {
        (DOCTYPE)
        html lang="en" {
            (head(POLICY, &html! { title { (title) " · rrun watch" } }, &[STYLE, CURVE_STYLE]))
            body {
                header { (headline(curve, title)) }
                main {
                    section { h2 { "All jobs" } (lead()) (plot(&marks(curve, |point| point.overall))) }
                    @for (index, name) in names(curve).into_iter().enumerate() {
                        section { h2 { (name) } (plot(&marks(curve, |point| of_job(point, index, name)))) }
                    }
                    section { h2 { "Checkpoints" } (table(curve)) }
                }
                footer { p { "Written by rrun at " (curve.written) " (UTC). The numbers are in watch.json." } }
            }
        }
    };
    document.into_string()
}

fn headline(curve: &Curve, title: &str) -> Markup {
    let evaluated = marks(curve, |point| point.overall).len() as u64;
    html! {
        h1 { (title) }
        p.lead {
            (format::counted(evaluated, "checkpoint", "checkpoints")) " of " code { (curve.checkpoints) } " evaluated"
            @if let Some((point, rate)) = curve.best() {
                "; the best so far is step " (format::count(point.step)) " with " (format::percent(rate))
            }
            "."
        }
    }
}

fn lead() -> Markup {
    html! { p.lead { "A point is the share of solved episodes, its line the 95" (format::THIN) "% Wilson interval." } }
}

/// Returns the names of the jobs that have plots of their own; of a single job there is none,
/// because it would repeat the first one.
fn names(curve: &Curve) -> Vec<&str> {
    let jobs = curve
        .points
        .iter()
        .map(|point| &point.jobs)
        .find(|jobs| jobs.len() > 1);
    let names = jobs.into_iter().flatten().map(|job| job.name.as_str());
    names.take(MOST_JOBS).collect()
}

fn of_job(point: &Point, index: usize, name: &str) -> Option<Score> {
    let job = point.jobs.get(index).filter(|job| job.name == name)?;
    Some(job.score)
}

fn marks(curve: &Curve, score: impl Fn(&Point) -> Option<Score>) -> Vec<Mark<'_>> {
    let mark = |point| {
        Some(Mark {
            point,
            score: score(point)?,
        })
    };
    let marks = curve.points.iter().filter_map(mark);
    marks
        .filter(|mark| mark.score.success_rate.is_some())
        .collect()
}

/// Returns the horizontal place of a step, in percent; a single step is in the middle.
fn across(step: u64, first: u64, last: u64) -> String {
    let share = match last.saturating_sub(first) {
        0 => 0.5,
        width => step.saturating_sub(first) as f64 / width as f64,
    };
    format!("{:.2}%", share * 100.0)
}

fn down(rate: f64) -> String {
    format!("{:.1}", (1.0 - rate.clamp(0.0, 1.0)) * HEIGHT)
}

fn plot(marks: &[Mark]) -> Markup {
    let (Some(first), Some(last)) = (marks.first(), marks.last()) else {
        return html! { p.muted { "No checkpoint has been evaluated yet." } };
    };
    let (first, last) = (first.point.step, last.point.step);
    let at = |mark: &Mark| across(mark.point.step, first, last);
    html! {
        div.plot {
            svg.curve width="100%" height=(HEIGHT + 28.0) role="img" aria-label="success rate by training step" {
                @for rate in [0.0, 0.25, 0.5, 0.75, 1.0] {
                    line.grid x1="0%" x2="100%" y1=(down(rate)) y2=(down(rate)) {}
                    text.rate x="-8" y=(down(rate)) dy="4" { (format::percent(rate)) }
                }
                @for pair in marks.windows(2) { (path(&pair[0], &pair[1], &at)) }
                @for mark in marks { (dot(mark, &at(mark))) }
                text.step x="0%" y=(HEIGHT + 22.0) { (format::count(first)) }
                @if last > first { text.step x="100%" y=(HEIGHT + 22.0) { (format::count(last)) } }
            }
        }
    }
}

fn path(from: &Mark, to: &Mark, at: &impl Fn(&Mark) -> String) -> Markup {
    let rate = |mark: &Mark| down(mark.score.success_rate.unwrap_or_default());
    html! { line.path x1=(at(from)) x2=(at(to)) y1=(rate(from)) y2=(rate(to)) {} }
}

fn dot(mark: &Mark, x: &str) -> Markup {
    let rate = mark.score.success_rate.unwrap_or_default();
    html! {
        @if let Some([low, high]) = mark.score.wilson95 {
            line.interval x1=(x) x2=(x) y1=(down(low)) y2=(down(high)) {}
        }
        circle cx=(x) cy=(down(rate)) r="4.5" {
            title { "step " (format::count(mark.point.step)) ": " (format::percent(rate)) }
        }
    }
}

fn table(curve: &Curve) -> Markup {
    let first = curve.points.len().saturating_sub(MOST_ROWS);
    html! {
        div.scroll role="region" aria-label="Checkpoints" tabindex="0" {
            table {
                thead { tr {
                    th.n { "Step" } th { "Checkpoint" } th { "State" } th.n { "Solved" } th.n { "Rate" }
                    th.n { "95" (format::THIN) "% interval" } th { "Note" }
                } }
                tbody { @for point in &curve.points[first..] { (row(point)) } }
            }
        }
        @if first > 0 { p.cut { (format::count(first as u64)) " earlier checkpoints are in watch.json." } }
    }
}

fn row(point: &Point) -> Markup {
    let score = point.overall.unwrap_or_default();
    html! {
        tr {
            td.n { (format::count(point.step)) }
            td { @if point.overall.is_some() && is_plain(&point.run) {
                a href={ "./" (point.run) "/report.html" } { (point.name) }
            } @else { (point.name) } }
            td { (point.state.as_str()) }
            td.n { @if score.episodes > 0 { (format::count(score.successes)) " of " (format::count(score.episodes)) } }
            td.n { @if let Some(rate) = score.success_rate { (format::percent(rate)) } }
            td.n { @if let Some(interval) = score.wilson95 { (format::interval(interval)) } }
            td { (point.reason.as_deref().unwrap_or_default()) }
        }
    }
}

/// Returns whether a name can stand in a link as it is.
fn is_plain(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.=".contains(letter);
    !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::hash;

    #[test]
    fn only_the_own_styles_are_allowed() {
        for text in [STYLE, CURVE_STYLE] {
            let hash = hash(text);
            assert!(POLICY.contains(&format!("'{hash}'")), "POLICY needs {hash}");
        }
        assert!(!CURVE_STYLE.contains("</"));
    }
}
