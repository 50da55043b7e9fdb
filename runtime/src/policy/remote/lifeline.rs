//! The channel between a policy that waits for a server and the eval loop that waits for the
//! policy.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::now;

/// The policy's end: it carries messages to the user, and the loop can cut it to end all waiting.
/// Clones share the same line.
#[derive(Clone, Debug)]
pub struct Lifeline {
    cut: Arc<(Mutex<bool>, Condvar)>,
    words: Option<Sender<String>>,
}

impl Lifeline {
    /// Creates a line without a receiver for its messages.
    pub fn alone() -> Self {
        Self {
            cut: Arc::default(),
            words: None,
        }
    }

    /// Creates a line and the receiver of its messages.
    pub fn heard() -> (Self, Receiver<String>) {
        let (words, heard) = channel();
        (
            Self {
                words: Some(words),
                ..Self::alone()
            },
            heard,
        )
    }

    /// Sends a message to the user.
    pub fn say(&self, text: String) {
        if let Some(words) = &self.words {
            // The receiver may be gone.
            words.send(text).ok();
        }
    }

    /// Ends all waiting on this line, now and later.
    pub fn cut(&self) {
        *self.cut.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.cut.1.notify_all();
    }

    /// Returns whether the line was cut.
    pub fn is_cut(&self) -> bool {
        *self.cut.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `duration`, or until the line is cut.
    pub fn rest(&self, duration: Duration) {
        let end = now() + duration;
        let mut is_cut = self.cut.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*is_cut {
            let left = end.saturating_duration_since(now());
            if left.is_zero() {
                return;
            }
            is_cut = self
                .cut
                .1
                .wait_timeout(is_cut, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_ends_a_rest() {
        let line = Lifeline::alone();
        let other = line.clone();
        let resting = std::thread::spawn(move || other.rest(Duration::from_secs(3600)));
        line.cut();
        resting.join().unwrap();
        assert!(line.is_cut());
    }

    #[test]
    fn words_come_out_at_the_other_end() {
        let (line, heard) = Lifeline::heard();
        line.clone().say("the server is away".to_owned());
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["the server is away"]);
        drop(heard);
        line.say("nobody listens".to_owned());
    }
}
