//! The queue before a tracker's thread. The run never waits for it: when it is full, the oldest
//! point is left out.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::eval::monitor::tracking::ending::RunEnding;
use crate::eval::monitor::tracking::point::Point;

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
    state: Mutex<Waiting>,
    /// Readable when there is something new.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Waiting {
    messages: VecDeque<Message>,
    left_out: u64,
    is_closed: bool,
}

impl Mailbox {
    /// Creates an empty mailbox.
    ///
    /// # Errors
    /// Returns the system's error if no descriptor is left.
    pub fn new() -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self {
            state: Mutex::default(),
            bell,
        })
    }

    /// Adds a message, and drops the oldest point if there are too many.
    pub fn put(&self, message: Message) {
        let mut state = self.state();
        if state.messages.len() >= MOST_MESSAGES {
            state.messages.pop_front();
            state.left_out += 1;
        }
        state.messages.push_back(message);
        drop(state);
        self.ring();
    }

    /// Asks the tracker to end at once.
    pub fn close(&self) {
        self.state().is_closed = true;
        self.ring();
    }

    /// Returns whether the tracker is to end at once.
    pub fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    /// Returns the number of points that were left out.
    pub fn left_out(&self) -> u64 {
        self.state().left_out
    }

    /// Takes the oldest message.
    pub fn take(&self) -> Option<Message> {
        self.state().messages.pop_front()
    }

    /// Waits for a message; `None` if the tracker is to end at once.
    pub fn wait(&self) -> Option<Message> {
        loop {
            self.silence();
            if self.is_closed() {
                return None;
            }
            if let Some(message) = self.take() {
                return Some(message);
            }
            // An interrupted wait is repeated.
            poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], None).ok();
        }
    }

    /// Returns the descriptor that is readable when there is something new.
    pub fn bell(&self) -> &OwnedFd {
        &self.bell
    }

    /// Takes note that there is something new.
    pub fn silence(&self) {
        // An error means that nothing was new.
        rustix::io::read(&self.bell, &mut [0; 8]).ok();
    }

    fn ring(&self) {
        // The counter cannot overflow in the lifetime of a process.
        rustix::io::write(&self.bell, &1_u64.to_ne_bytes()).ok();
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!((mailbox.take(), mailbox.left_out()), (None, 0));
    }

    #[test]
    fn a_full_mailbox_keeps_the_newest_points_and_the_end() {
        let mailbox = Mailbox::new().unwrap();
        (0..MOST_MESSAGES as u64 + 5).for_each(|step| mailbox.put(point(step)));
        let ending = Message::Ending(Box::default());
        mailbox.put(ending.clone());
        assert_eq!(mailbox.wait(), Some(point(6)));
        assert_eq!(mailbox.left_out(), 6);
        let last = std::iter::from_fn(|| mailbox.take()).last();
        assert_eq!(last, Some(ending));
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
