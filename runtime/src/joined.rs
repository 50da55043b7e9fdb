//! A thread that is told to end, and waited for, when its owner is dropped.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread that ends when it is dropped.
#[derive(Debug)]
pub struct JoinedThread<S> {
    /// What lets the thread end when it is dropped, such as the sender of its channel. It stands
    /// above the handle because fields are dropped in their order.
    pub end: S,
    _handle: WaitedFor,
}

impl<S> JoinedThread<S> {
    /// Starts a thread.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn spawn(thread: Builder, end: S, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let handle = WaitedFor(Some(thread.spawn(run)?));
        Ok(Self {
            end,
            _handle: handle,
        })
    }
}

/// The handle of a thread whose end is waited for on drop.
#[derive(Debug)]
struct WaitedFor(Option<JoinHandle<()>>);

impl Drop for WaitedFor {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_thread_that_is_dropped_is_told_to_end_and_has_ended() {
        let (end, ended) = channel::<()>();
        let held = Arc::new(());
        let of_thread = Arc::clone(&held);
        let run = move || {
            ended.recv().unwrap_err();
            drop(of_thread);
        };
        let thread = JoinedThread::spawn(Builder::new(), end, run).unwrap();
        assert_eq!(Arc::strong_count(&held), 2);
        drop(thread);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
