//! Renders a curve as `watch.html`, a single page in the style of `report.html`.

use jobs::format;
use maud::{Markup, html};

use crate::curve::{Curve, JobScore, Point, texts};
use crate::page::chart::{Mark, curve};
use crate::page::document::{Document, Fragment};
use crate::page::parts::{Cell, MOST_ROWS, count, heads, href, table};
use crate::stats::SolvedRate;

/// What a drawing has to the right, and upwards.
const ABOUT: &str = "training step; success rate in\u{202f}%";

/// Most plots of single jobs.
const MOST_JOBS: usize = 24;

const CURVES: [&str; 3] = ["curves", "Success", "Success by training step"];

const CHECKPOINTS: [&str; 3] = ["checkpoints", "Checkpoints", "Checkpoints"];

impl Curve {
    /// Returns the page.
    pub fn page(&self) -> String {
        let title = self.jobs_file.rsplit('/').next().unwrap_or_default();
        let document = Document {
            title: &format!("{title} · rrun watch"),
            loads: "form-action 'none'; img-src data:",
            seen: None,
            header: headline(self, title),
            footer: html! { "Written by rrun at " (self.written) " (UTC). The numbers are in watch.json." },
            sections: &[
                Fragment::new(CURVES, curves(self)),
                Fragment::new(CHECKPOINTS, checkpoints(self)),
            ],
        };
        document.render()
    }
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
    // Of a single job there is no drawing, because it would repeat the first one.
    let mut jobs = of.points.iter().map(|point| &point.jobs[..]);
    let jobs = jobs.find(|jobs| jobs.len() > 1).unwrap_or_default();
    let drawn = |of_job: Option<(usize, &JobScore)>| {
        let score = |point: &Point| match of_job {
            None => point.overall,
            Some((at, job)) => {
                let found = point.jobs.get(at).filter(|found| found.name == job.name);
                found.map(|found| found.score)
            }
        };
        html! {
            figure.curve {
                @if let Some((_, job)) = of_job { figcaption { b { (job.name) } } }
                (curve(&marks(of, score), ABOUT))
            }
        }
    };
    html! {
        p.lead { "A point is the share of solved episodes, its line the 95" (format::THIN) "% Wilson interval." }
        (drawn(None))
        @for job in jobs.iter().enumerate().take(MOST_JOBS) { (drawn(Some(job))) }
    }
}

/// Returns the marks of the checkpoints with episodes.
fn marks(curve: &Curve, score: impl Fn(&Point) -> Option<SolvedRate>) -> Vec<Mark> {
    let mark = |point: &Point| Mark {
        at: point.step as f64,
        solved: score(point).unwrap_or_default().into(),
        name: format!("step {}", format::count(point.step)),
    };
    let marks = curve.points.iter().map(mark);
    marks.filter(|mark| mark.solved.episodes > 0).collect()
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
