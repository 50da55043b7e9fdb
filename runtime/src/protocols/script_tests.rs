//! An exchange of messages that a test has written down.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::protocols::{CallError, Exchange};

/// The messages of a server, and those that it got.
#[derive(Debug, Default)]
pub(crate) struct Script {
    /// What it sends, one for each that is received.
    pub(crate) answers: VecDeque<Bytes>,
    /// What it got.
    pub(crate) heard: Vec<Bytes>,
}

impl Script {
    /// Creates the server that sends these.
    pub(crate) fn of(answers: impl IntoIterator<Item = Bytes>) -> Self {
        Self {
            answers: answers.into_iter().collect(),
            heard: Vec::new(),
        }
    }
}

impl Exchange for Script {
    async fn send(&mut self, message: Bytes) -> Result<(), CallError> {
        self.heard.push(message);
        Ok(())
    }

    async fn receive(&mut self) -> Result<Bytes, CallError> {
        let closed = || CallError::Away("it closed the connection".to_owned());
        self.answers.pop_front().ok_or_else(closed)
    }

    async fn receive_more(&mut self) -> Result<Bytes, CallError> {
        self.receive().await
    }
}
