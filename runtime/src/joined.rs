//! A thread that is waited for when its owner is dropped.

use std::io;
use std::thread::{Builder, JoinHandle};

/// A thread whose end is waited for on drop. What tells it to end, such as the sender of its
/// channel, has to be dropped before: it stands above this in a struct.
#[derive(Debug)]
pub struct JoinedThread(Option<JoinHandle<()>>);

impl JoinedThread {
    /// Starts a thread.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let thread = Builder::new().name(name.to_owned()).spawn(run)?;
        Ok(Self(Some(thread)))
    }
}

impl Drop for JoinedThread {
    fn drop(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the thread was printed when it happened.
            thread.join().ok();
        }
    }
}
