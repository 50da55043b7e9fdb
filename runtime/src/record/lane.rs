//! A thread of the recorder behind a bounded channel that counts how often, and how long, the
//! sender had to wait for free space.

use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::record::RecordError;

/// How often and how long a sender had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelWaits {
    /// Number of messages that had to wait for free space.
    pub count: u64,
    /// Total time of these waits.
    pub time: Duration,
}

impl std::iter::Sum for ChannelWaits {
    fn sum<I: Iterator<Item = Self>>(waits: I) -> Self {
        waits.fold(Self::default(), |all, one| Self {
            count: all.count + one.count,
            time: all.time + one.time,
        })
    }
}

/// What comes of closing a thread.
#[derive(Debug)]
pub(super) struct Closed {
    /// Messages for the user, one line each.
    pub(super) notes: Vec<String>,
    /// Success, or the first error.
    pub(super) result: Result<(), RecordError>,
}

impl Default for Closed {
    fn default() -> Self {
        Self::of(Ok(()))
    }
}

impl Closed {
    /// Returns a result without messages.
    pub(super) fn of(result: Result<(), RecordError>) -> Self {
        Self {
            notes: Vec::new(),
            result,
        }
    }

    /// Combines two results: all messages, and the first error.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.notes.extend(other.notes);
        Self {
            notes: self.notes,
            result: self.result.and(other.result),
        }
    }
}

/// A thread with a state of its own. Dropped, it ends when it has worked off its messages.
#[derive(Debug)]
pub(super) struct Lane<M> {
    sender: SyncSender<M>,
    thread: JoinHandle<Closed>,
    waits: ChannelWaits,
}

impl<M: Send + 'static> Lane<M> {
    /// Starts a thread whose channel has room for `depth` messages.
    pub(super) fn spawn(
        name: String,
        depth: usize,
        work: impl FnOnce(Receiver<M>) -> Closed + Send + 'static,
    ) -> Result<Self, RecordError> {
        let (sender, receiver) = mpsc::sync_channel(depth);
        let failed = |err| RecordError(format!("no thread `{name}`: {err}"));
        let builder = thread::Builder::new().name(name.clone());
        let thread = builder.spawn(move || work(receiver)).map_err(failed)?;
        Ok(Self {
            sender,
            thread,
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

    /// Returns the waits so far.
    pub(super) fn waits(&self) -> ChannelWaits {
        self.waits
    }

    /// Closes the channel; [`joined`] waits for the end of the thread.
    pub(super) fn close(self) -> JoinHandle<Closed> {
        self.thread
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a wait is measured where it happens"
    )]
    fn wait(&mut self, message: M) -> bool {
        let start = Instant::now();
        let sent = self.sender.send(message).is_ok();
        self.waits.count += 1;
        self.waits.time += start.elapsed();
        sent
    }
}

/// Waits until these threads have finished; they close their files in parallel.
pub(super) fn joined(threads: Vec<JoinHandle<Closed>>) -> Closed {
    let closed = threads.into_iter().map(|thread| {
        thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            let text = text.unwrap_or_else(|| "a panic without a message".to_owned());
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
        let mut lane = Lane::spawn("a lane".to_owned(), 1, work).unwrap();
        assert!(lane.send(1));
        assert_eq!(lane.waits(), ChannelWaits::default());
        let later = thread::spawn(move || begin.send(()));
        assert!(lane.wait(2));
        assert_eq!(lane.waits().count, 1);
        later.join().unwrap().unwrap();
        joined(vec![lane.close()]).result.unwrap();
        assert_eq!(heard.iter().collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn a_thread_that_panics_takes_no_more_messages_and_says_why() {
        let work = |_: Receiver<()>| panic!("as a test wants it");
        let mut lane = Lane::spawn("a lane".to_owned(), 1, work).unwrap();
        while lane.send(()) {}
        let reason = joined(vec![lane.close()]).result.unwrap_err().to_string();
        assert!(
            reason.ends_with("ended early: as a test wants it"),
            "{reason}"
        );
    }
}
