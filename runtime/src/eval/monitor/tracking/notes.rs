//! What a tracker has to say to the user, which the loop of rank 0 prints.

use std::sync::mpsc::Sender;

use jobs::tracking::Tracker;

/// The voice of a tracker.
#[derive(Clone, Debug)]
pub struct Notes {
    tracker: Tracker,
    sender: Sender<String>,
}

impl Notes {
    /// Creates the voice of `tracker`.
    pub fn new(tracker: Tracker, sender: Sender<String>) -> Self {
        Self { tracker, sender }
    }

    /// Tells the user something.
    pub fn say(&self, text: &str) {
        // The run may be over already.
        let name = self.tracker.name();
        self.sender.send(format!("{name}: {text}")).ok();
    }

    /// Warns the user.
    pub fn warn(&self, text: &str) {
        let name = self.tracker.name();
        self.sender.send(format!("warning: {name}: {text}")).ok();
    }

    /// Tells the user why the tracker ends before its run.
    pub fn give_up(&self, why: &str) {
        self.warn(&format!("{why}; the run goes on without it"));
    }
}
