//! Experiment trackers: they show a run over time, beside other runs.
//!
//! ```text
//! view ─► points ─┬─ mailbox ─► thread: tensorboard ─► event file
//!                 └─ mailbox ─► thread: python ═ rrun_track.py ─► wandb, trackio, mlflow
//! report ─► ending ─┘
//! ```
//! Only rank 0 has them. Nothing here ends a run or makes it wait, except for a limited time at its
//! end: a tracker has a thread and a mailbox of its own, and one that fails is reported once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use std::{io, thread};

use jobs::job::{Job, Status};
use jobs::layout::RunFolder;
use jobs::plan::RunPlan;
use jobs::tracking::{Tracker, TrackingArgs};
use report::Report;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Value, json};

use crate::clock::{now, unix_seconds};
use crate::eval::monitor::meter::OtherProcesses;
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tracking::point::{Point, Points, RunEnding, last_point};
use crate::eval::monitor::view::RunSnapshot;
use crate::inbox::Inbox;
use crate::python::find_interpreter;

mod point;
mod python;
mod tensorboard;

/// Time in which trackers may take what is left at the end of a run.
const END_LIMIT: Duration = Duration::from_secs(30);
/// The same with videos to upload.
const UPLOAD_LIMIT: Duration = Duration::from_secs(300);
/// The same for a run that was stopped: launchers and schedulers wait about 30 seconds.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Time for a tracker that was told to end at once.
const CLOSE_LIMIT: Duration = Duration::from_secs(3);
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
    /// Takes the processes of trackers, which are no environments.
    pub others: OtherProcesses,
}

/// The trackers of a run.
#[derive(Debug)]
pub struct Tracking {
    trackers: Vec<(Tracker, Arc<Mailbox>)>,
    /// Ends when all trackers have ended.
    notes: Receiver<String>,
    points: Points,
    limit: Duration,
}

impl Tracking {
    /// Starts the trackers of a run.
    pub fn start(run: &TrackedRun<'_>) -> Self {
        let introduction = Arc::new(run.introduction());
        let (sender, notes) = channel();
        let start = |tracker: Tracker| {
            let notes = Notes(tracker, sender.clone());
            let started = run.start(tracker, &introduction, notes.clone());
            let mailbox = started.inspect_err(|why| notes.give_up(why)).ok()?;
            Some((tracker, mailbox))
        };
        Self {
            trackers: run.args.trackers().into_iter().filter_map(start).collect(),
            notes,
            points: Points::new(&run.plan.jobs, now()),
            limit: match run.args.track_videos {
                true => UPLOAD_LIMIT,
                false => END_LIMIT,
            },
        }
    }

    /// Logs the state of the run, if it is time to. Returns what the user is to be told.
    pub fn on(&mut self, snapshot: &RunSnapshot, now: Instant) -> Vec<String> {
        if let Some(point) = self.points.on(snapshot, now, unix_seconds()) {
            self.put(&Message::Point(point));
        }
        self.notes.try_iter().collect()
    }

    /// Logs the results of the run, and waits for the trackers for a limited time. Returns what the
    /// user is to be told.
    pub fn finish(self, report: &Report, folder: &RunFolder, stop: &StopRequest) -> Vec<String> {
        let ending = RunEnding::new(report, folder);
        self.put(&Message::Point(last_point(report, unix_seconds())));
        self.put(&Message::Ending(Box::new(ending)));
        let mut said = Vec::new();
        let begun = now();
        let limit = || if stop.asked() { STOP_LIMIT } else { self.limit };
        if !self.wait(&mut said, || begun.elapsed() >= limit()) {
            self.close();
            let begun = now();
            self.wait(&mut said, || begun.elapsed() >= CLOSE_LIMIT);
        }
        for (tracker, mailbox) in &self.trackers {
            let (name, left_out) = (tracker.name(), mailbox.left_out());
            if left_out > 0 {
                let text = format!("warning: {name} was too slow for {left_out} points");
                said.push(text);
            }
        }
        said
    }

    /// Waits until all trackers have ended or `is_over`; returns whether they have ended.
    fn wait(&self, said: &mut Vec<String>, is_over: impl Fn() -> bool) -> bool {
        loop {
            match self.notes.recv_timeout(TICK) {
                Ok(note) => said.push(note),
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) if is_over() => return false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn put(&self, message: &Message) {
        let trackers = self.trackers.iter();
        trackers.for_each(|(_, mailbox)| mailbox.put(message.clone()));
    }

    fn close(&self) {
        self.trackers
            .iter()
            .for_each(|(_, mailbox)| mailbox.close());
    }
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
                let events = self.folder.tensorboard();
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
            done.unwrap_or_else(|why| notes.give_up(&why));
        };
        let thread = thread::Builder::new().name(tracker.name().to_owned());
        thread.spawn(work).map_err(text)?;
        Ok(mailbox)
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.close();
    }
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

/// Maximum number of waiting messages: more than an hour of a tracker that takes none. A point has
/// less than 100 bytes for each value that has changed.
const MOST_MESSAGES: usize = 512;

/// What a tracker is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The state of the run at a moment.
    Point(Point),
    /// The end of the run, after which nothing comes.
    Ending(Box<RunEnding>),
}

/// The messages that a tracker has not taken yet.
#[derive(Debug)]
pub struct Mailbox {
    /// The messages.
    pub inbox: Inbox<Message>,
    left_out: AtomicU64,
    is_closed: AtomicBool,
}

/// What a tracker has to say to the user, which the loop of rank 0 prints.
#[derive(Clone, Debug)]
pub struct Notes(pub Tracker, pub Sender<String>);

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// Returns why no descriptor is left.
    pub fn new() -> Result<Self, String> {
        Ok(Self {
            inbox: Inbox::new().map_err(|err| err.to_string())?,
            left_out: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Adds a message, and drops the oldest point if there are too many.
    pub fn put(&self, message: Message) {
        let is_full = self.inbox.put_within(MOST_MESSAGES, message);
        self.left_out.fetch_add(is_full.into(), Ordering::Relaxed);
    }

    /// Returns the number of points that were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out.load(Ordering::Relaxed)
    }

    /// Asks the tracker to end at once.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.inbox.ring();
    }

    /// Returns whether the tracker is to end at once.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// Waits for a message; `None` if the tracker is to end at once.
    pub fn wait(&self) -> Option<Message> {
        loop {
            self.inbox.silence();
            if self.is_closed() {
                return None;
            }
            if let Some(message) = self.inbox.take_one() {
                return Some(message);
            }
            // An interrupted wait is repeated.
            poll(&mut [PollFd::new(&self.inbox.bell(), PollFlags::IN)], None).ok();
        }
    }
}

impl Notes {
    /// Tells the user something.
    pub fn say(&self, text: &str) {
        // The run may be over already.
        self.1.send(format!("{}: {text}", self.0.name())).ok();
    }

    /// Warns the user.
    pub fn warn(&self, text: &str) {
        let warning = format!("warning: {}: {text}", self.0.name());
        self.1.send(warning).ok();
    }

    /// Tells the user why the tracker ends before its run.
    pub fn give_up(&self, why: &str) {
        self.warn(&format!("{why}; the run goes on without it"));
    }
}

#[cfg(test)]
mod tests;
