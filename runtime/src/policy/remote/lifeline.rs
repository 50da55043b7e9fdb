//! The channel between a policy that waits for a server and the eval loop that waits for the
//! policy.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use tokio::sync::watch;

/// The policy's end: it carries messages to the user, and the loop can cut it to end all waiting.
/// Clones share the same line.
#[derive(Clone, Debug)]
pub struct Lifeline {
    cut: Arc<watch::Sender<bool>>,
    words: Option<Sender<String>>,
}

impl Lifeline {
    /// Creates a line without a receiver for its messages.
    pub fn alone() -> Self {
        Self {
            cut: Arc::new(watch::Sender::new(false)),
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
        self.cut.send_replace(true);
    }

    /// Returns whether the line was cut.
    pub fn is_cut(&self) -> bool {
        *self.cut.borrow()
    }

    /// Waits until the line is cut.
    pub async fn until_cut(&self) {
        // The sender lives as long as this line.
        self.cut.subscribe().wait_for(|is_cut| *is_cut).await.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cut_is_seen_before_and_after_it() {
        let line = Lifeline::alone();
        let other = line.clone();
        let waiting = tokio::spawn(async move { other.until_cut().await });
        tokio::task::yield_now().await;
        line.cut();
        waiting.await.unwrap();
        line.until_cut().await;
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
