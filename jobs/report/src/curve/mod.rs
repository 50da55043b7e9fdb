//! The results of a training's checkpoints, one after the other: `watch.json` and `watch.html`.
//!
//! ```text
//! report.json of each checkpoint ─► Point ─┬► Curve ─► watch.json, and back at the next start
//!                                          ├► page     rate and interval over the training step
//!                                          └► table    the same in the terminal
//! ```

use std::io;
use std::path::Path;

use jobs::files::{self, MAX_DOCUMENT_BYTES};
use jobs::format;
use jobs::layout::write_whole;
use jobs::table::{MAX_ROWS, Table};
use maud::{Markup, html};
use serde::{Deserialize, Serialize};

use crate::Report;
use crate::page::chart::{Mark, curve};
use crate::page::document::{Document, Fragment};
use crate::page::parts::{Cell, MOST_ROWS, count, heads, href, table};
use crate::stats::{Solved, SolvedRate};

/// The `schema` field of every `watch.json` that this version writes.
pub const SCHEMA: &str = "rrun/watch/1";

/// The evaluations of a training's checkpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Curve {
    /// [`SCHEMA`].
    pub schema: String,
    /// Folder of the checkpoints.
    pub checkpoints: String,
    /// Path of the jobs file.
    pub jobs_file: String,
    /// SHA-256 of the jobs, before a checkpoint is filled in.
    pub jobs_sha256: String,
    /// When the file was written, RFC 3339 in UTC.
    pub written: String,
    /// The checkpoints by ascending step.
    pub points: Vec<Point>,
}

/// What is known about a checkpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Name of its file or folder.
    pub name: String,
    /// Training step, the last number in the name.
    pub step: u64,
    /// State of its evaluation.
    pub state: PointState,
    /// How often it was evaluated without success.
    pub failures: u32,
    /// Why it waits, failed or was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Run folder of its evaluation, relative to that of `watch.json`.
    pub run: String,
    /// Results over all jobs; `None` if it was not evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overall: Option<SolvedRate>,
    /// Results of each job, in the order of the jobs file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobScore>,
}

/// State of a checkpoint's evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointState {
    /// It is not evaluated yet.
    #[default]
    Waiting,
    /// Its evaluation runs.
    Running,
    /// It was evaluated.
    Evaluated,
    /// Its evaluation failed too often.
    Failed,
    /// It disappeared before it was evaluated.
    Gone,
}

/// The results of one job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobScore {
    /// Name of the job.
    pub name: String,
    /// Its results.
    #[serde(flatten)]
    pub score: SolvedRate,
}

impl Point {
    /// Fills in the results of a report.
    pub fn set_results(&mut self, report: &Report) {
        let of_job = |job: &crate::JobReport| JobScore {
            name: job.name.clone(),
            score: Solved::from(&job.rates).into(),
        };
        self.overall = Some(Solved::from(&report.controls).into());
        self.jobs = report.per_job.iter().map(of_job).collect();
    }
}

impl Curve {
    /// Reads a `watch.json`; returns `None` if there is none, or if another program wrote it.
    pub fn read(path: &Path) -> Option<Self> {
        let curve: Self = files::read_json(path, MAX_DOCUMENT_BYTES).ok()?;
        (curve.schema == SCHEMA).then_some(curve)
    }

    /// Writes `watch.json` and `watch.html` into a folder; each is replaced atomically.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut json = serde_json::to_vec_pretty(self)?;
        json.push(b'\n');
        write_whole(&folder.join("watch.json"), &json)?;
        write_whole(&folder.join("watch.html"), self.page().as_bytes())
    }

    /// Returns a table for the terminal: the last checkpoints, by step.
    pub fn table(&self) -> String {
        let first = self.points.len().saturating_sub(MAX_ROWS);
        let head = [
            "Step",
            "Checkpoint",
            "State",
            "Solved",
            "Rate",
            "95 % Interval",
        ];
        Table::new(head, self.points[first..].iter().map(texts)).grid()
    }

    /// Returns the evaluated checkpoint with the highest rate; of equals, the first.
    pub fn best(&self) -> Option<(&Point, f64)> {
        let rated = |point: &'_ Point| point.overall.and_then(|score| score.success_rate);
        let points = self.points.iter().rev();
        let rated = points.filter_map(|point| Some((point, rated(point)?)));
        rated.max_by(|(_, a), (_, b)| a.total_cmp(b))
    }
}

/// Returns step, name, state, solved episodes, rate and interval of a checkpoint.
fn texts(point: &Point) -> [String; 6] {
    let solved = Solved::from(point.overall.unwrap_or_default());
    let rate = solved.rate();
    [
        point.step.to_string(),
        point.name.clone(),
        format::word(point.state),
        rate.map_or_else(String::new, |_| solved.to_string()),
        rate.map(format::tenths).unwrap_or_default(),
        solved.wilson95().map(format::interval).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests;

/// What a drawing has to the right, and upwards.
const ABOUT: &str = "training step; success rate in\u{202f}%";

/// Most plots of single jobs.
const MOST_JOBS: usize = 24;

const CURVES: [&str; 3] = ["curves", "Success", "Success by training step"];

const CHECKPOINTS: [&str; 3] = ["checkpoints", "Checkpoints", "Checkpoints"];

impl Curve {
    /// Returns `watch.html`, a single page in the style of `report.html`.
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
        format::word(point.state).into(),
        number(solved),
        number(rate),
        number(interval),
        point.reason.as_deref().unwrap_or_default().into(),
    ]
}
