//! The way to a tracker's thread and back. The run never waits for it: when it is full, the oldest
//! point is left out.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;

use jobs::tracking::Tracker;
use rustix::event::{PollFd, PollFlags, poll};

use crate::eval::monitor::tracking::ending::RunEnding;
use crate::eval::monitor::tracking::point::Point;
use crate::inbox::Inbox;

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
mod tests {
    use super::*;

    fn point(step: u64) -> Message {
        Message::Point(Point {
            step,
            ..Point::default()
        })
    }

    #[test]
    fn messages_come_out_in_order() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.put(point(1));
        mailbox.put(point(2));
        assert_eq!(mailbox.wait(), Some(point(1)));
        assert_eq!(mailbox.wait(), Some(point(2)));
        assert_eq!((mailbox.inbox.take_one(), mailbox.left_out()), (None, 0));
    }

    #[test]
    fn a_full_mailbox_keeps_the_newest_points_and_the_end() {
        let mailbox = Mailbox::new().unwrap();
        (0..MOST_MESSAGES as u64 + 5).for_each(|step| mailbox.put(point(step)));
        let ending = Message::Ending(Box::default());
        mailbox.put(ending.clone());
        assert_eq!(mailbox.wait(), Some(point(6)));
        assert_eq!(mailbox.left_out(), 6);
        assert_eq!(mailbox.inbox.take().pop(), Some(ending));
    }

    #[test]
    fn a_tracker_that_waits_is_woken_to_end() {
        let mailbox = std::sync::Arc::new(Mailbox::new().unwrap());
        let waiting = std::sync::Arc::clone(&mailbox);
        let tracker = std::thread::spawn(move || waiting.wait());
        mailbox.close();
        assert_eq!(tracker.join().unwrap(), None);
    }
}
