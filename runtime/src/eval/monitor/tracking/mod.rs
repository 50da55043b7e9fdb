//! Experiment trackers: they show a run over time, beside other runs.
//!
//! ```text
//! view ─► points ─┬─► tensorboard ─► event file
//! report ─► ending ┴─► python: queue ═ rrun_track.py ─► wandb, trackio, mlflow
//! ```
//! Only rank 0 has them. Nothing here ends a run, and what a process does not take yet waits in its
//! queue. The run waits for a limited time at its end, and before it for nothing but the death of a
//! process that has failed, which is reported once.

use std::collections::BTreeSet;
use std::io;
use std::time::{Duration, Instant};

use jobs::job::{Job, Status};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::tracking::{Tracker, TrackingArgs};
use report::Report;
use serde_json::{Value, json};

use crate::clock::{now, unix_seconds};
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tracking::point::{Point, Points, RunEnding, last_point};
use crate::eval::monitor::tracking::python::PythonTracker;
use crate::eval::monitor::tracking::tensorboard::EventFile;
use crate::eval::monitor::view::RunSnapshot;

mod point;
mod python;
mod tensorboard;

/// Time in which trackers may take what is left at the end of a run.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The same with videos to upload.
const UPLOAD_LIMIT: Duration = Duration::from_secs(300);
/// The same for a run that was stopped: launchers and schedulers wait about 30 seconds.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How often the wait at the end looks whether the run is being stopped.
const TICK: Duration = Duration::from_millis(100);

/// Maximum number of names in a list.
const MOST_NAMES: usize = 100;

/// A run, and how it is to be tracked.
pub struct TrackedRun<'r> {
    /// The trackers, and their settings.
    pub args: &'r TrackingArgs,
    /// The plan of the run.
    pub plan: &'r RunPlan,
    /// Its folder.
    pub folder: &'r RunFolder,
    /// Number of ranks.
    pub world_size: usize,
}

/// The trackers of a run.
pub struct Tracking {
    /// Those that have not ended.
    trackers: Vec<(Tracker, Log)>,
    /// What the user is to be told.
    notes: Vec<String>,
    points: Points,
    limit: Duration,
}

/// Where a tracker logs.
enum Log {
    Events(EventFile),
    Python(Box<PythonTracker>),
}

impl Tracking {
    /// Starts the trackers of a run.
    pub fn start(run: &TrackedRun<'_>) -> Self {
        let introduction = run.introduction();
        let (mut trackers, mut notes) = (Vec::new(), Vec::new());
        for tracker in run.args.trackers() {
            match run.start(tracker, &introduction, &mut notes) {
                Ok(log) => trackers.push((tracker, log)),
                Err(why) => notes.push(given_up(tracker, &why)),
            }
        }
        Self {
            trackers,
            notes,
            points: Points::new(&run.plan.jobs, now()),
            limit: match run.args.track_videos {
                true => UPLOAD_LIMIT,
                false => END_LIMIT,
            },
        }
    }

    /// Returns the PIDs of their processes.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        let logs = self.trackers.iter();
        logs.filter_map(|(_, log)| match log {
            Log::Events(_) => None,
            Log::Python(python) => Some(python.worker.pid()),
        })
    }

    /// Logs the state of the run, if it is time to. Returns what the user is to be told.
    pub fn on(&mut self, snapshot: &RunSnapshot, now: Instant) -> Vec<String> {
        if let Some(point) = self.points.on(snapshot, now, unix_seconds()) {
            self.log(&point);
        }
        self.listen(Duration::ZERO);
        std::mem::take(&mut self.notes)
    }

    /// Logs the results of the run, and waits for the trackers for a limited time. Returns what the
    /// user is to be told.
    pub fn finish(
        mut self,
        report: &Report,
        folder: &RunFolder,
        stop: &StopRequest,
    ) -> Vec<String> {
        self.log(&last_point(report, unix_seconds()));
        let ending = RunEnding::new(report, folder);
        self.each(|log, notes| match log {
            Log::Events(events) => events.end(&ending).map(|()| false).map_err(text),
            Log::Python(python) => {
                python.end(&ending, notes);
                Ok(true)
            }
        });
        let (begun, limit) = (now(), self.limit);
        let limit = || if stop.asked() { STOP_LIMIT } else { limit };
        while !self.trackers.is_empty() && begun.elapsed() < limit() {
            self.listen(TICK / self.trackers.len() as u32);
        }
        self.each(|log, _| match log {
            Log::Python(python) if !python.has_all() => {
                Err("it has not taken everything in time".to_owned())
            }
            Log::Python(_) | Log::Events(_) => Ok(false),
        });
        self.notes
    }

    fn log(&mut self, point: &Point) {
        self.each(|log, _| match log {
            Log::Events(events) => events.add(point).map(|()| true).map_err(text),
            Log::Python(python) => {
                python.add(point);
                Ok(true)
            }
        });
    }

    /// Lets the process of each tracker go on for this time.
    fn listen(&mut self, patience: Duration) {
        self.each(|log, notes| match log {
            Log::Events(_) => Ok(true),
            Log::Python(python) => python.go_on(now() + patience, notes),
        });
    }

    /// Does something with each tracker. Those for which it returns false, or why they end before
    /// their run, have ended.
    fn each(&mut self, mut act: impl FnMut(&mut Log, &mut Vec<String>) -> Result<bool, String>) {
        let Self {
            trackers, notes, ..
        } = self;
        trackers.retain_mut(|(tracker, log)| {
            act(log, notes).unwrap_or_else(|why| {
                notes.push(given_up(*tracker, &why));
                false
            })
        });
    }
}

impl TrackedRun<'_> {
    /// Returns what trackers are told at the start. By its id, a tracker continues a run.
    fn introduction(&self) -> Value {
        let root = self.folder.root();
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let of_folder = root.file_name().map(|name| name.to_string_lossy());
        let named = &self.args.track_name;
        json!({
            "id": self.plan.id,
            "is_named": named.is_some(),
            "name": named.as_deref().or(of_folder.as_deref()).unwrap_or("rrun"),
            "config": config(self.plan, self.world_size),
        })
    }

    fn start(
        &self,
        tracker: Tracker,
        introduction: &Value,
        notes: &mut Vec<String>,
    ) -> Result<Log, String> {
        if tracker != Tracker::Tensorboard {
            let python = PythonTracker::start(self, tracker, introduction)?;
            return Ok(Log::Python(Box::new(python)));
        }
        let folder = self.folder.tensorboard();
        let events = EventFile::create(&folder, &introduction["config"]).map_err(text)?;
        let shown = folder.display();
        notes.push(format!("tensorboard: `tensorboard --logdir {shown}`"));
        Ok(Log::Events(events))
    }
}

fn given_up(tracker: Tracker, why: &str) -> String {
    let name = tracker.name();
    format!("warning: {name}: {why}; the run goes on without it")
}

fn text(err: io::Error) -> String {
    err.to_string()
}

/// Returns the configuration of a run, which has no secrets, because a plan has none.
fn config(plan: &RunPlan, world_size: usize) -> Value {
    let jobs = || plan.jobs.iter().filter(|job| job.status == Status::Pending);
    let names = |of: fn(&Job) -> String| {
        let names: BTreeSet<String> = jobs().map(of).collect();
        names.into_iter().take(MOST_NAMES).collect::<Vec<_>>()
    };
    let git = plan.git.as_ref();
    json!({
        "run_id": plan.id,
        "jobs_file": plan.jobs_file,
        "jobs_sha256": plan.jobs_sha256,
        "jobs": jobs().take(MOST_NAMES).map(|job| &job.name).collect::<Vec<_>>(),
        "environments": names(|job| job.environment.clone()),
        "policies": names(policy),
        "seed": plan.seed,
        "seeds_of_jobs": jobs().filter_map(|job| job.seed).take(MOST_NAMES).collect::<Vec<_>>(),
        "world_size": world_size,
        "options": plan.options,
        "rrun": plan.rrun,
        "git_commit": git.map(|git| &git.commit),
        "git_dirty": git.map(|git| git.dirty),
        "created": plan.created,
    })
}

/// Returns the policy type of a job, with the path that it is read from.
fn policy(job: &Job) -> String {
    match job.policy_config.get("model_path").and_then(Value::as_str) {
        Some(path) => format!("{} {path}", job.policy_type),
        None => job.policy_type.clone(),
    }
}

#[cfg(test)]
mod tests;
