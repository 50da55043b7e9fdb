//! A bounded channel to a thread that counts how often, and how long, the sender had to wait for
//! free space.

use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::time::{Duration, Instant};

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

/// The sending side of the channel.
#[derive(Debug)]
pub(super) struct CountingSender<T> {
    sender: SyncSender<T>,
    waits: ChannelWaits,
}

/// Creates a channel with room for `depth` messages.
pub(super) fn channel<T>(depth: usize) -> (CountingSender<T>, Receiver<T>) {
    let (sender, receiver) = mpsc::sync_channel(depth);
    (
        CountingSender {
            sender,
            waits: ChannelWaits::default(),
        },
        receiver,
    )
}

impl<T> CountingSender<T> {
    /// Sends a message, and waits for free space if necessary; returns `false` if the receiver is
    /// gone.
    pub(super) fn send(&mut self, message: T) -> bool {
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

    #[expect(
        clippy::disallowed_methods,
        reason = "a wait is measured where it happens"
    )]
    fn wait(&mut self, message: T) -> bool {
        let start = Instant::now();
        let sent = self.sender.send(message).is_ok();
        self.waits.count += 1;
        self.waits.time += start.elapsed();
        sent
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_full_channel_counts_the_wait_and_loses_nothing() {
        let (mut sender, receiver) = channel(1);
        assert!(sender.send(1));
        assert_eq!(sender.waits(), ChannelWaits::default());
        let received = thread::scope(|scope| {
            let reader = scope.spawn(move || receiver.iter().take(2).collect::<Vec<i32>>());
            // The second message waits until the reader has taken the first; after that it does
            // not.
            assert!(sender.send(2));
            reader.join().unwrap()
        });
        assert_eq!(received, [1, 2]);
        assert!(!sender.send(3));
    }

    #[test]
    fn a_wait_is_counted_with_its_time() {
        let (mut sender, _receiver) = channel(1);
        assert!(sender.wait(7));
        assert_eq!(sender.waits().count, 1);
    }
}
