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
use serde::{Deserialize, Serialize};

use crate::Report;
use crate::stats::{Solved, SolvedRate};

mod page;

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

impl PointState {
    /// Returns the name of the state.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Evaluated => "evaluated",
            Self::Failed => "failed",
            Self::Gone => "gone",
        }
    }
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
        let curve: Self =
            serde_json::from_slice(&files::read(path, MAX_DOCUMENT_BYTES).ok()?).ok()?;
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
        point.state.as_str().to_owned(),
        rate.map_or_else(String::new, |_| solved.to_string()),
        rate.map(format::tenths).unwrap_or_default(),
        solved.wilson95().map(format::interval).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests;
