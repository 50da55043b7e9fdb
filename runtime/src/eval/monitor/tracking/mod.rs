//! Experiment trackers: they show a run over time, beside other runs.
//!
//! ```text
//! view ─► points ─┬─ mailbox ─► thread: tensorboard ─► event file
//!                 └─ mailbox ─► thread: python ═ rrun_track.py ─► wandb, trackio, mlflow
//! report ─► ending ─┘
//! ```
//! Only rank 0 has them. Nothing here ends a run or makes it wait, except for a limited time at its
//! end: a tracker has a thread and a mailbox of its own, and one that fails is reported once.

mod ending;
mod mailbox;
mod point;
mod python;
mod start;
mod tensorboard;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use jobs::layout::RunFolder;
use jobs::tracking::Tracker;
use report::Report;

use crate::clock::{now, unix_seconds};
use crate::eval::monitor::stop::StopRequest;
use crate::eval::monitor::tracking::ending::RunEnding;
use crate::eval::monitor::tracking::mailbox::{Mailbox, Message, Notes};
use crate::eval::monitor::tracking::point::{Points, last_point};
use crate::eval::monitor::tracking::start::give_up;
use crate::eval::monitor::view::snapshot::RunSnapshot;

pub use start::TrackedRun;

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
            let mailbox = started.inspect_err(|why| give_up(&notes, why)).ok()?;
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

impl Drop for Tracking {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests;
