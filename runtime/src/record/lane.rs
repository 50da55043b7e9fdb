//! A thread of the recorder behind a bounded channel that counts how often, and how long, the
//! sender had to wait for free space.

use std::ops::AddAssign;
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::clock::now;
use crate::record::RecordError;

/// How often and how long a sender had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelWaits {
    /// Number of messages that had to wait for free space.
    pub count: u64,
    /// Total time of these waits.
    pub time: Duration,
}

impl AddAssign for ChannelWaits {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.time += other.time;
    }
}

/// What comes of closing a thread.
#[derive(Debug)]
pub struct Closed {
    /// Messages for the user, one line each.
    pub notes: Vec<String>,
    /// Success, or the first error.
    pub result: Result<(), RecordError>,
}

impl Default for Closed {
    fn default() -> Self {
        Self::of(Ok(()))
    }
}

impl Closed {
    /// Returns a result without messages.
    pub(super) fn of(result: Result<(), RecordError>) -> Self {
        let notes = Vec::new();
        Self { notes, result }
    }

    /// Combines two results: all messages, and the first error.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.notes.extend(other.notes);
        self.result = self.result.and(other.result);
        self
    }
}

/// A thread with a state of its own. Dropped, it ends when it has worked off its messages.
#[derive(Debug)]
pub(super) struct Lane<M> {
    sender: SyncSender<M>,
    thread: JoinHandle<Closed>,
    pub(super) waits: ChannelWaits,
}

impl<M: Send + 'static> Lane<M> {
    /// Starts a thread whose channel has room for `depth` messages.
    pub(super) fn spawn(
        name: &str,
        depth: usize,
        work: impl FnOnce(Receiver<M>) -> Closed + Send + 'static,
    ) -> Result<Self, RecordError> {
        let (sender, receiver) = mpsc::sync_channel(depth);
        let builder = thread::Builder::new().name(name.to_owned());
        let thread = builder.spawn(move || work(receiver));
        Ok(Self {
            sender,
            thread: thread.map_err(|err| RecordError(format!("no thread `{name}`: {err}")))?,
            waits: ChannelWaits::default(),
        })
    }

    /// Sends a message, and waits for free space if necessary; returns `false` if the thread has
    /// ended.
    pub(super) fn send(&mut self, message: M) -> bool {
        match self.sender.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Disconnected(_)) => false,
            Err(TrySendError::Full(message)) => self.wait(message),
        }
    }

    /// Closes the channel; returns the thread.
    pub(super) fn hang_up(self) -> JoinHandle<Closed> {
        self.thread
    }

    fn wait(&mut self, message: M) -> bool {
        let start = now();
        let sent = self.sender.send(message).is_ok();
        self.waits += ChannelWaits {
            count: 1,
            time: start.elapsed(),
        };
        sent
    }
}

/// Waits until threads without a channel have finished; they close their files in parallel.
pub(super) fn join(threads: Vec<JoinHandle<Closed>>) -> Closed {
    let closed = threads.into_iter().map(|thread| {
        thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("a panic without a message");
            let reason = format!("a thread of the recorder ended early: {text}");
            Closed::of(Err(RecordError(reason)))
        })
    });
    closed.fold(Closed::default(), Closed::and)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_full_channel_counts_the_wait_and_loses_nothing() {
        let (begin, begun) = channel();
        let (said, heard) = channel();
        let work = move |messages: Receiver<i32>| {
            begun.recv().unwrap();
            messages
                .iter()
                .for_each(|message| said.send(message).unwrap());
            Closed::default()
        };
        let mut lane = Lane::spawn("a lane", 1, work).unwrap();
        assert!(lane.send(1));
        assert_eq!(lane.waits, ChannelWaits::default());
        let later = thread::spawn(move || begin.send(()));
        assert!(lane.wait(2));
        assert_eq!(lane.waits.count, 1);
        later.join().unwrap().unwrap();
        join(vec![lane.hang_up()]).result.unwrap();
        assert_eq!(heard.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_thread_that_panics_takes_no_more_messages_and_says_why() {
        let work = |_: Receiver<()>| panic!("as a test wants it");
        let mut lane = Lane::spawn("a lane", 1, work).unwrap();
        while lane.send(()) {}
        let reason = join(vec![lane.hang_up()]).result.unwrap_err().to_string();
        assert!(
            reason.ends_with("ended early: as a test wants it"),
            "{reason}"
        );
    }
}
