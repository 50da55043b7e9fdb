//! What a tracker gets at the end of a run: how it went, the table of the tasks, and where the rest
//! is.

use std::path::PathBuf;

use jobs::layout::RunFolder;
use jobs::table::Table;
use report::Report;
use serde::Serialize;

/// Maximum number of rows of the table; the report has all.
const MOST_ROWS: usize = 300;
/// Maximum number of videos that are named.
const MOST_VIDEOS: usize = 100;

/// How a run ended, in MLflow's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum RunStatus {
    /// Every episode ran without an error.
    #[default]
    Finished,
    /// An episode is missing or ended with an error.
    Failed,
    /// A signal or another rank stopped it.
    Killed,
}

/// The row of a task in the table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskRow {
    task: String,
    episodes: u64,
    successes: u64,
    errors: u64,
    success_rate: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
}

/// What is said about a run at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunEnding {
    /// How it ended.
    pub status: RunStatus,
    /// One row for each task that has episodes.
    pub rows: Vec<TaskRow>,
    /// The report as a page, as an absolute path.
    pub page: PathBuf,
    /// Videos, as absolute paths.
    pub videos: Vec<PathBuf>,
}

impl RunEnding {
    /// Takes what trackers show from the report in `folder`.
    pub fn new(report: &Report, folder: &RunFolder) -> Self {
        let root = std::path::absolute(folder.root()).unwrap_or_else(|_| folder.root().to_owned());
        let ran = report.per_job.iter().filter(|job| job.rates.episodes > 0);
        let row = |job: &report::JobReport| TaskRow {
            task: job.name.clone(),
            episodes: job.rates.episodes,
            successes: job.rates.successes,
            errors: job.rates.errors,
            success_rate: job.rates.success_rate,
            low: job.rates.wilson95.map(|[low, _]| low),
            high: job.rates.wilson95.map(|[_, high]| high),
        };
        let videos = report.per_job.iter().flat_map(|job| &job.videos);
        Self {
            status: match (&report.run.stopped, report.complete()) {
                (Some(_), _) => RunStatus::Killed,
                (None, true) => RunStatus::Finished,
                (None, false) => RunStatus::Failed,
            },
            rows: ran.map(row).take(MOST_ROWS).collect(),
            page: RunFolder::new(&root).page(),
            // A path that is absolute already stays as it is.
            videos: videos
                .map(|path| root.join(path))
                .take(MOST_VIDEOS)
                .collect(),
        }
    }

    /// Returns the table as Markdown, which trackers render.
    pub fn table(&self) -> String {
        let percent = |share: f64| format!("{:.1}", share * 100.0);
        let row = |row: &TaskRow| {
            let rate = row.success_rate.map(percent).unwrap_or_default();
            let interval = match (row.low, row.high) {
                (Some(low), Some(high)) => format!("{} to {}", percent(low), percent(high)),
                _ => String::new(),
            };
            let [episodes, successes, errors] =
                [row.episodes, row.successes, row.errors].map(|count| count.to_string());
            let task = row.task.clone();
            [
                task,
                episodes,
                successes,
                errors,
                rate + " %",
                interval + " %",
            ]
        };
        let head = [
            "task",
            "episodes",
            "successes",
            "errors",
            "success rate",
            "95 %",
        ];
        Table::new(head, self.rows.iter().map(row)).markdown()
    }

    /// Returns the paths of page and videos as Markdown.
    pub fn files(&self) -> String {
        let mut text = format!("report: `{}`\n", self.page.display());
        for video in &self.videos {
            text += &format!("* `{}`\n", video.display());
        }
        text
    }
}
