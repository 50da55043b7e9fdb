//! The run that is tracked, and the threads of its trackers.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::tracking::{Tracker, TrackingArgs};
use serde_json::{Map, Value};

use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::tracking::config::config;
use crate::eval::monitor::tracking::mailbox::Mailbox;
use crate::eval::monitor::tracking::notes::Notes;
use crate::eval::monitor::tracking::python::PythonTracker;
use crate::eval::monitor::tracking::tensorboard;
use crate::python::find_interpreter;

/// The interpreter of trackers if the user names none.
const PYTHON: &str = "python3";

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

/// What trackers are told of a run at its start.
#[derive(Clone, Debug)]
pub struct RunIntroduction {
    /// Id of the run, by which a tracker continues it.
    pub id: String,
    /// Project, if the user named one.
    pub project: Option<String>,
    /// Name of the run.
    pub name: String,
    /// Whether the user has named it.
    pub is_named: bool,
    /// Its configuration.
    pub config: Map<String, Value>,
}

impl TrackedRun<'_> {
    /// Returns what trackers are told at the start.
    pub fn introduction(&self) -> RunIntroduction {
        let root = self.folder.root();
        let root = std::path::absolute(root).unwrap_or_else(|_| root.to_owned());
        let of_folder = root
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let named = self.args.track_name.clone();
        RunIntroduction {
            id: self.plan.id.clone(),
            project: self.args.track_project.clone(),
            is_named: named.is_some(),
            name: named.or(of_folder).unwrap_or_else(|| "rrun".to_owned()),
            config: config(self.plan, self.world_size),
        }
    }

    /// Starts the thread of a tracker; returns its mailbox.
    ///
    /// # Errors
    /// Returns why there is no thread or no interpreter.
    pub fn start(
        &self,
        tracker: Tracker,
        run: &Arc<RunIntroduction>,
        notes: Notes,
    ) -> Result<Arc<Mailbox>, String> {
        let mailbox = Arc::new(Mailbox::new().map_err(text)?);
        let (run, theirs) = (Arc::clone(run), Arc::clone(&mailbox));
        let work: Box<dyn FnOnce() -> Result<(), String> + Send> = match tracker {
            Tracker::Tensorboard => {
                let given = self.args.track_dir.clone();
                let events = given.unwrap_or_else(|| self.folder.tensorboard());
                notes.say(&format!("`tensorboard --logdir {}`", events.display()));
                Box::new(move || tensorboard::run(&events, &run.config, &theirs).map_err(text))
            }
            Tracker::Wandb | Tracker::Trackio | Tracker::Mlflow => {
                let python = PythonTracker {
                    tracker,
                    python: interpreter(self.args.track_python.as_deref())?,
                    log: self.folder.tracker_log(tracker.name()),
                    is_uploaded: self.args.track_videos,
                    others: self.others.clone(),
                };
                let notes = notes.clone();
                Box::new(move || python.run(&run, &theirs, &notes))
            }
        };
        let work = move || {
            if let Err(err) = work() {
                notes.give_up(&err);
            }
        };
        thread::Builder::new()
            .name(tracker.name().to_owned())
            .spawn(work)
            .map_err(text)?;
        Ok(mailbox)
    }
}

fn text(err: io::Error) -> String {
    err.to_string()
}

fn interpreter(given: Option<&Path>) -> Result<PathBuf, String> {
    let python = given.unwrap_or(PYTHON.as_ref());
    find_interpreter(&python.to_string_lossy())
        .map_err(|reason| format!("`{}`: {reason}", python.display()))
}
