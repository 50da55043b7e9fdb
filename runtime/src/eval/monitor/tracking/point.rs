//! What is logged of a run, and when: points while it runs, and at its end how it went, the table
//! of the tasks, and where the rest is. Pure: no I/O and no clock of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use jobs::job::{Job, JobIndex};
use jobs::layout::RunFolder;
use jobs::table::Table;
use report::stats::{Solved, mean};
use report::{JobReport, Rates, Report};
use serde::Serialize;
use serde_json::{Value, json};

use crate::eval::monitor::beat::JobTally;
use crate::eval::monitor::view::{RankView, RunSnapshot};

/// Minimum time between two points at the beginning, which is that of the heartbeats.
const OFTEN: Duration = Duration::from_secs(1);
/// Minimum time between two points of a long run.
const SELDOM: Duration = Duration::from_secs(10);
/// The time between two points grows to this part of the run, so that short runs have curves, too.
const PART: u32 = 100;

/// The values at one moment of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Point {
    /// Number of finished episodes, earlier launches included.
    pub step: u64,
    /// Seconds since 1970.
    pub unix_s: f64,
    /// Values by name.
    pub values: Vec<(String, f64)>,
}

/// Makes points of the states of a run.
#[derive(Debug)]
pub struct Points {
    /// Names of the jobs, by their index.
    names: BTreeMap<JobIndex, String>,
    begun: Instant,
    /// Time and step of the last point.
    last: Option<(Instant, u64)>,
    /// What the last points said of each job.
    said: BTreeMap<JobIndex, JobTally>,
    /// The jobs under control, if there are variants: the overall rate is theirs.
    controls: Option<BTreeSet<JobIndex>>,
}

impl Points {
    /// Creates the points of a launch that begins at `now`.
    pub fn new(jobs: &[Job], now: Instant) -> Self {
        let names = jobs.iter().map(|job| (job.index, job.name.clone()));
        Self {
            names: names.collect(),
            begun: now,
            last: None,
            said: BTreeMap::new(),
            controls: controls(jobs),
        }
    }

    /// Returns the next point, if an episode has ended since the last one, and that was long
    /// enough ago.
    pub fn on(&mut self, run: &RunSnapshot, now: Instant, unix_s: f64) -> Option<Point> {
        let age = now.saturating_duration_since(self.begun);
        let pause = (age / PART).clamp(OFTEN, SELDOM);
        let is_due = match self.last {
            None => run.done > 0,
            Some((at, step)) => run.done > step && now.saturating_duration_since(at) >= pause,
        };
        if !is_due {
            return None;
        }
        self.last = Some((now, run.done));
        let mut values = Vec::new();
        let of_controls = self.controls.as_ref().map(|controls| {
            let all = run.by_job.iter();
            let of = all.filter(|(job, _)| controls.contains(job));
            of.fold((0, 0), |sum, (_, job)| {
                (sum.0 + job.solved, sum.1 + job.ended)
            })
        });
        let (solved, ended) = of_controls.unwrap_or((run.solved, run.done));
        add_rate(&mut values, "overall", solved, ended);
        values.push(("overall/errors".to_owned(), run.errors as f64));
        values.extend(speed(run));
        for (job, tally) in &run.by_job {
            let name = self.names.get(job);
            if let Some(name) = name.filter(|_| self.said.get(job) != Some(tally)) {
                let place = format!("tasks/{name}");
                add_rate(&mut values, &place, tally.solved, tally.ended);
                self.said.insert(*job, *tally);
            }
        }
        Some(Point {
            step: run.done,
            unix_s,
            values,
        })
    }
}

/// Returns the jobs that are not variants of another one; `None` if all are such.
fn controls(jobs: &[Job]) -> Option<BTreeSet<JobIndex>> {
    let names: BTreeSet<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
    let is_control = |job: &&Job| {
        let variant = job.variant.as_ref();
        variant.is_none_or(|variant| !names.contains(variant.of.as_str()))
    };
    let controls = jobs.iter().filter(is_control).map(|job| job.index);
    let controls: BTreeSet<_> = controls.collect();
    (controls.len() < jobs.len()).then_some(controls)
}

/// Returns the last point of a run, whose values are those of its report.
pub fn last_point(report: &Report, unix_s: f64) -> Point {
    let mut values = Vec::new();
    let mut add = |place: &str, rates: &Rates| {
        add_rate(&mut values, place, rates.successes, rates.episodes);
        values.push((format!("{place}/errors"), rates.errors as f64));
    };
    add("overall", &report.controls);
    for job in report.per_job.iter().filter(|job| job.rates.episodes > 0) {
        add(&format!("tasks/{}", job.name), &job.rates);
    }
    let mean = report.mean_task_success_rate;
    values.extend(mean.map(|mean| ("overall/mean_task_success_rate".to_owned(), mean)));
    Point {
        step: report.overall.episodes,
        unix_s,
        values,
    }
}

/// Adds a success rate, its Wilson interval at 95 %, and the number of episodes.
fn add_rate(values: &mut Vec<(String, f64)>, place: &str, solved: u64, ended: u64) {
    values.push((format!("{place}/episodes"), ended as f64));
    if let Some([low, high]) = Solved::new(solved, ended).wilson95() {
        let rate = solved as f64 / ended as f64;
        values.push((format!("{place}/success_rate"), rate));
        values.push((format!("{place}/success_rate_low"), low));
        values.push((format!("{place}/success_rate_high"), high));
    }
}

/// Returns how fast the run is: sums over ranks, and of shares of time the means over the ranks
/// that are at work.
fn speed(run: &RunSnapshot) -> impl Iterator<Item = (String, f64)> {
    let at_work = || run.ranks.iter().filter(|rank| !rank.beat.arrived);
    let share = |of: fn(&RankView) -> Option<f64>| mean(at_work().filter_map(of));
    let steps_per_s = run.ranks.iter().map(|rank| rank.steps_per_s).sum();
    let values = [
        ("episodes_per_s", Some(run.rate)),
        ("steps_per_s", Some(steps_per_s)),
        ("sim_busy", share(|rank| Some(rank.sim_busy))),
        ("infer_busy", share(|rank| Some(rank.infer_busy))),
        ("gpu_busy", share(|rank| rank.gpu_busy)),
    ];
    values
        .into_iter()
        .filter_map(|(name, value)| Some((format!("speed/{name}"), value?)))
}

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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use serde_json::json;

    use crate::clock::now;
    use crate::eval::monitor::beat::Beat;
    use crate::eval::monitor::view::{EarlierResults, RunView};

    fn jobs() -> Vec<Job> {
        crate::eval::tests::jobs([json!({}), json!({"name": "b"})])
    }

    fn beat(tallies: &[(usize, u64, u64)]) -> Beat {
        let tally = |(job, ended, solved): &(usize, u64, u64)| {
            let (ended, solved) = (*ended, *solved);
            (JobIndex(*job), JobTally { ended, solved })
        };
        Beat {
            ended: tallies.iter().map(|tally| tally.1).sum(),
            ended_solved: tallies.iter().map(|tally| tally.2).sum(),
            by_job: Some(tallies.iter().map(tally).collect()),
            ..Beat::default()
        }
    }

    fn values(point: &Point) -> BTreeMap<&str, f64> {
        let values = point.values.iter();
        values.map(|(name, value)| (&**name, *value)).collect()
    }

    #[test]
    fn rates_of_all_ranks_are_logged_with_their_intervals() {
        let start = now();
        let mut view = RunView::new(EarlierResults::default(), 2);
        let mut points = Points::new(&jobs(), start);
        let ranks = [beat(&[(0, 2, 1)]), beat(&[(0, 2, 2), (1, 1, 0)])];
        let point = points.on(&view.on(&ranks, start), start, 7.0).unwrap();
        assert_eq!((point.step, point.unix_s), (5, 7.0));
        let values = values(&point);
        let [low, high] = Solved::new(3, 4).wilson95().unwrap();
        for (name, value) in [
            ("overall/success_rate", 3.0 / 5.0),
            ("tasks/a/success_rate", 3.0 / 4.0),
            ("tasks/b/episodes", 1.0),
            ("tasks/a/success_rate_low", low),
            ("tasks/a/success_rate_high", high),
        ] {
            assert_eq!(values[name], value, "{name}");
        }
        assert!(values.contains_key("speed/sim_busy") && !values.contains_key("speed/gpu_busy"));
    }

    #[test]
    fn the_overall_rate_is_that_of_the_controls() {
        let start = now();
        let dark = json!({"name": "dark", "light_intensity": 100});
        let jobs = crate::eval::tests::jobs([json!({"variations": [dark]})]);
        let mut view = RunView::new(EarlierResults::default(), 1);
        let mut points = Points::new(&jobs, start);
        let ranks = [beat(&[(0, 2, 2), (1, 3, 0)])];
        let point = points.on(&view.on(&ranks, start), start, 7.0).unwrap();
        let values = values(&point);
        assert_eq!((point.step, values["overall/success_rate"]), (5, 1.0));
        assert_eq!(values["tasks/a_dark/success_rate"], 0.0);
    }

    #[test]
    fn a_point_needs_an_episode_and_a_pause_that_grows_with_the_run() {
        let start = now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut view = RunView::new(EarlierResults::default(), 1);
        let mut points = Points::new(&jobs(), start);
        let mut is_logged = |ended: u64, seconds: u64| {
            let run = view.on(&[beat(&[(0, ended, 0)])], at(seconds));
            points.on(&run, at(seconds), 0.0).is_some()
        };
        assert!(!is_logged(0, 1), "nothing has ended");
        assert!(is_logged(1, 2));
        assert!(!is_logged(1, 9), "no episode has ended since");
        assert!(is_logged(2, 10) && is_logged(3, 11));
        assert!(is_logged(4, 1000) && !is_logged(5, 1009) && is_logged(6, 1010));
        assert!(is_logged(7, 10_000) && is_logged(8, 10_010));
    }

    #[test]
    fn a_task_is_logged_when_it_has_changed() {
        let start = now();
        let later = start + Duration::from_secs(60);
        let mut view = RunView::new(EarlierResults::default(), 1);
        let mut points = Points::new(&jobs(), start);
        points.on(&view.on(&[beat(&[(0, 1, 1)])], start), start, 0.0);
        let run = view.on(&[beat(&[(0, 1, 1), (1, 1, 1)])], later);
        let point = points.on(&run, later, 0.0).unwrap();
        let names = values(&point);
        assert!(names.contains_key("tasks/b/success_rate"), "{names:?}");
        assert!(!names.contains_key("tasks/a/success_rate"), "{names:?}");
    }
}
