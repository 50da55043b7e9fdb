//! The run that is tracked, what trackers are told at its start, and their threads.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::thread;

use jobs::job::{Job, Status};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::tracking::{Tracker, TrackingArgs};
use serde_json::{Value, json};

use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Notes};
use crate::eval::monitor::tracking::{python, tensorboard};
use crate::python::find_interpreter;

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
    /// Takes the processes of trackers, which are no environments.
    pub others: OtherProcesses,
}

impl TrackedRun<'_> {
    /// Returns what trackers are told at the start. By its id, a tracker continues a run.
    pub fn introduction(&self) -> Value {
        let root = self.folder.root();
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let of_folder = root.file_name().map(|name| name.to_string_lossy());
        let named = &self.args.track_name;
        json!({
            "id": self.plan.id,
            "project": self.args.track_project,
            "is_named": named.is_some(),
            "name": named.as_deref().or(of_folder.as_deref()).unwrap_or("rrun"),
            "config": config(self.plan, self.world_size),
        })
    }

    /// Starts the thread of a tracker; returns its mailbox.
    ///
    /// # Errors
    /// Returns why there is no thread or no interpreter.
    pub fn start(
        &self,
        tracker: Tracker,
        run: &Arc<Value>,
        notes: Notes,
    ) -> Result<Arc<Mailbox>, String> {
        let mailbox = Arc::new(Mailbox::new()?);
        let (run, theirs) = (Arc::clone(run), Arc::clone(&mailbox));
        let work: Box<dyn FnOnce() -> Result<(), String> + Send> = match tracker {
            Tracker::Tensorboard => {
                let given = self.args.track_dir.clone();
                let events = given.unwrap_or_else(|| self.folder.tensorboard());
                notes.say(&format!("`tensorboard --logdir {}`", events.display()));
                Box::new(move || tensorboard::run(&events, &run["config"], &theirs).map_err(text))
            }
            Tracker::Wandb | Tracker::Trackio | Tracker::Mlflow => {
                let python = self.args.track_python.as_deref();
                let python = python.unwrap_or("python3".as_ref());
                let shown = python.display();
                let found = find_interpreter(&python.to_string_lossy());
                let python = python::PythonTracker {
                    tracker,
                    python: found.map_err(|reason| format!("`{shown}`: {reason}"))?,
                    log: self.folder.tracker_log(tracker.name()),
                    is_uploaded: self.args.track_videos,
                    others: self.others.clone(),
                };
                let notes = notes.clone();
                Box::new(move || python.run(&run, &theirs, &notes))
            }
        };
        let work = move || {
            let done = work();
            done.unwrap_or_else(|why| give_up(&notes, &why));
        };
        let thread = thread::Builder::new().name(tracker.name().to_owned());
        thread.spawn(work).map_err(text)?;
        Ok(mailbox)
    }
}

/// Tells the user why a tracker ends before its run.
pub fn give_up(notes: &Notes, why: &str) {
    notes.warn(&format!("{why}; the run goes on without it"));
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
