//! The reasons for which the planner of an agent fails.

use std::io;

/// The reason why a planner has no actions for an environment.
#[derive(Debug, thiserror::Error)]
pub enum PlannerError {
    /// The observation lacks a picture that the model is to see.
    #[error("camera `{camera}` shows nothing")]
    NoPicture {
        /// Name of the camera.
        camera: String,
    },
    /// A picture cannot be encoded.
    #[error("the picture of camera `{camera}` is not a PNG: {err}")]
    Png {
        /// Name of the camera.
        camera: String,
        /// The encoder's error.
        #[source]
        err: png::EncodingError,
    },
    /// A file of the episode cannot be written.
    #[error("the transcript of the planner cannot be written: {err}")]
    Transcript {
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// The evaluation ends while a planner waits for its model server.
    #[error("the model server at {url} is no longer used")]
    Closed {
        /// URL of the model server.
        url: String,
    },
    /// The model server gives no answer that can be used.
    #[error("the model server at {url} {reason}")]
    ModelServer {
        /// URL of the model server.
        url: String,
        /// What it did, as a clause, and how often it was asked.
        reason: String,
    },
    /// A thread of the planner has ended early.
    #[error("a planner's thread has ended without an answer")]
    Unanswered,
    /// The planner has ended before it answered.
    #[error("the planner has ended")]
    Ended,
}
