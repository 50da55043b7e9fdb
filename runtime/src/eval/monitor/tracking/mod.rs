//! Experiment trackers: they show a run over time, beside other runs.
//!
//! ```text
//! view ─► points ─┬─ mailbox ─► thread: tensorboard ─► event file
//!                 └─ mailbox ─► thread: python ═ rrun_track.py ─► wandb, trackio, mlflow
//! report ─► ending ─┘
//! ```
//! Only rank 0 has them. Nothing here ends a run or makes it wait, except for a limited time at its
//! end: a tracker has a thread and a mailbox of its own, and one that fails is reported once.

mod config;
mod ending;
mod mailbox;
mod notes;
mod point;
mod python;
mod tensorboard;
mod tracked_run;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::tracking::Tracker;
use report::Report;

use crate::clock::{now, unix_seconds};
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tracking::ending::RunEnding;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message};
use crate::eval::monitor::tracking::notes::Notes;
use crate::eval::monitor::tracking::point::{Points, last_point};
use crate::eval::monitor::view::snapshot::RunSnapshot;

pub use tracked_run::TrackedRun;

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

/// The trackers of a run.
#[derive(Debug)]
pub struct Tracking {
    trackers: Vec<RunningTracker>,
    /// Ends when all trackers have ended.
    notes: Receiver<String>,
    points: Points,
    limit: Duration,
}

#[derive(Debug)]
struct RunningTracker {
    tracker: Tracker,
    mailbox: Arc<Mailbox>,
}

impl Tracking {
    /// Starts the trackers of a run.
    pub fn start(run: &TrackedRun<'_>) -> Self {
        let introduction = Arc::new(run.introduction());
        let (sender, notes) = channel();
        let start = |tracker: Tracker| {
            let voice = Notes::new(tracker, sender.clone());
            let started = run.start(tracker, &introduction, voice.clone());
            let mailbox = started.inspect_err(|err| voice.give_up(err)).ok()?;
            Some(RunningTracker { tracker, mailbox })
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
        let is_over = || {
            let limit = if stop.asked() { STOP_LIMIT } else { self.limit };
            begun.elapsed() >= limit
        };
        let all_have_ended = self.wait(&mut said, is_over);
        if !all_have_ended {
            self.close();
            let begun = now();
            self.wait(&mut said, || begun.elapsed() >= CLOSE_LIMIT);
        }
        for tracker in &self.trackers {
            let left_out = tracker.mailbox.left_out();
            if left_out > 0 {
                let name = tracker.tracker.name();
                said.push(format!(
                    "warning: {name} was too slow for {left_out} points"
                ));
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
        for tracker in &self.trackers {
            tracker.mailbox.put(message.clone());
        }
    }

    fn close(&self) {
        self.trackers
            .iter()
            .for_each(|tracker| tracker.mailbox.close());
    }
}

impl Drop for Tracking {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
