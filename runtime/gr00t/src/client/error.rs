//! The reason for refusing an observation of a client.

/// An error in an observation, with the reference's message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidObservation {
    /// The reference's message, which the client receives.
    pub message: String,
}

impl InvalidObservation {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
        }
    }
}
