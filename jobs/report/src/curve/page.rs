//! Renders a curve as `watch.html`, a single page in the style of `report.html`.

use jobs::format;
use maud::{Markup, html};

use crate::curve::{Curve, Point, texts};
use crate::page::chart::{Mark, curve};
use crate::page::document::{Document, Fragment};
use crate::page::parts::{Cell, MOST_ROWS, count, heads, href, table};
use crate::stats::{Solved, SolvedRate};

/// What a drawing has to the right, and upwards.
const ABOUT: &str = "training step; success rate in\u{202f}%";

/// Most plots of single jobs.
const MOST_JOBS: usize = 24;

/// Renders the page.
pub(super) fn render(curve: &Curve) -> String {
    let title = curve.jobs_file.rsplit('/').next().unwrap_or_default();
    let document = Document {
        title: &format!("{title} · rrun watch"),
        loads: "form-action 'none'; img-src data:",
        seen: None,
        header: headline(curve, title),
        footer: html! { "Written by rrun at " (curve.written) " (UTC). The numbers are in watch.json." },
        sections: &[
            Fragment::new(
                ["curves", "Success", "Success by training step"],
                curves(curve),
            ),
            Fragment::new(
                ["checkpoints", "Checkpoints", "Checkpoints"],
                checkpoints(curve),
            ),
        ],
    };
    document.render()
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

fn curves(of: &Curve) -> Markup {
    html! {
        p.lead { "A point is the share of solved episodes, its line the 95" (format::THIN) "% Wilson interval." }
        figure.curve { (curve(&marks(of, |point| point.overall), ABOUT)) }
        @for (index, name) in names(of).into_iter().enumerate() {
            figure.curve {
                figcaption { b { (name) } }
                (curve(&marks(of, |point| of_job(point, index, name)), ABOUT))
            }
        }
    }
}

/// Returns the names of the jobs that have plots of their own; of a single job there is none,
/// because it would repeat the first one.
fn names(curve: &Curve) -> Vec<&str> {
    let jobs = curve.points.iter().map(|point| &point.jobs);
    let jobs = jobs.filter(|jobs| jobs.len() > 1).take(1).flatten();
    jobs.map(|job| job.name.as_str()).take(MOST_JOBS).collect()
}

fn of_job(point: &Point, index: usize, name: &str) -> Option<SolvedRate> {
    let job = point.jobs.get(index).filter(|job| job.name == name)?;
    Some(job.score)
}

/// Returns the marks of the checkpoints with episodes.
fn marks(curve: &Curve, score: impl Fn(&Point) -> Option<SolvedRate>) -> Vec<Mark> {
    let mark = |point: &Point| {
        let solved = score(point).map(Solved::from)?;
        solved.rate().map(|_| Mark {
            at: point.step as f64,
            solved,
            name: format!("step {}", format::count(point.step)),
        })
    };
    curve.points.iter().filter_map(mark).collect()
}

/// Lists the last checkpoints.
fn checkpoints(curve: &Curve) -> Markup {
    let heads = heads([
        "Step",
        "Checkpoint",
        "State",
        "Solved",
        "Rate",
        "95\u{202f}% interval",
        "Note",
    ]);
    let first = curve.points.len().saturating_sub(MOST_ROWS);
    html! {
        (table(["Checkpoints", ""], &heads, curve.points[first..].iter(), row))
        @if first > 0 { p.cut { (format::count(first as u64)) " earlier checkpoints are in watch.json." } }
    }
}

fn row(point: &Point) -> Vec<Cell> {
    let [_, _, _, solved, rate, interval] = texts(point);
    let name = html! {
        @if point.overall.is_some() {
            a href=(href(&format!("{}/report.html", point.run))) { (point.name) }
        } @else { (point.name) }
    };
    let number = |text: String| Cell::from(text).class("n");
    vec![
        count(point.step),
        name.into(),
        point.state.as_str().into(),
        number(solved),
        number(rate),
        number(interval),
        point.reason.as_deref().unwrap_or_default().into(),
    ]
}
