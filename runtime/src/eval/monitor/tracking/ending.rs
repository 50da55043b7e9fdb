//! What a tracker gets at the end of a run: how it went, the table of the tasks, and where the rest
//! is.

use std::path::PathBuf;

use jobs::layout::RunFolder;
use jobs::table::Table;
use report::{JobReport, Report};
use serde::Serialize;
use serde_json::{Value, json};

/// Maximum number of rows of the table; the report has all.
const MOST_ROWS: usize = 300;
/// The head of the table in Markdown.
const HEAD: [&str; 6] = [
    "task",
    "episodes",
    "successes",
    "errors",
    "success rate",
    "95 %",
];
/// Maximum number of videos that are named.
const MOST_VIDEOS: usize = 100;

/// What is said about a run at its end.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunEnding {
    /// How it ended, in MLflow's words.
    pub status: &'static str,
    /// One row for each task that has episodes.
    pub rows: Vec<Value>,
    /// The same as Markdown, which TensorBoard renders.
    #[serde(skip)]
    pub table: String,
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
        let ran = ran.take(MOST_ROWS);
        let videos = report.per_job.iter().flat_map(|job| &job.videos);
        Self {
            status: match (&report.run.stopped, report.complete()) {
                (Some(_), _) => "KILLED",
                (None, true) => "FINISHED",
                (None, false) => "FAILED",
            },
            rows: ran.clone().map(row).collect(),
            table: Table::new(HEAD, ran.map(cells)).markdown(),
            page: RunFolder::new(&root).page(),
            // A path that is absolute already stays as it is.
            videos: videos
                .map(|path| root.join(path))
                .take(MOST_VIDEOS)
                .collect(),
        }
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

fn row(job: &JobReport) -> Value {
    let rates = &job.rates;
    json!({
        "task": job.name,
        "episodes": rates.episodes,
        "successes": rates.successes,
        "errors": rates.errors,
        "success_rate": rates.success_rate,
        "low": rates.wilson95.map(|[low, _]| low),
        "high": rates.wilson95.map(|[_, high]| high),
    })
}

fn cells(job: &JobReport) -> [String; 6] {
    let rates = &job.rates;
    let percent = |share: f64| format!("{:.1}", share * 100.0);
    let rate = rates.success_rate.map(percent).unwrap_or_default();
    let interval = rates.wilson95.map(|ends| ends.map(percent).join(" to "));
    [
        job.name.clone(),
        rates.episodes.to_string(),
        rates.successes.to_string(),
        rates.errors.to_string(),
        rate + " %",
        interval.unwrap_or_default() + " %",
    ]
}
