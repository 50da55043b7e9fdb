//! What the episode loop asks of the inference thread, and what comes back.

use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::time::Duration;

use jobs::job::Job;

use crate::env::EnvSpec;
use crate::policy::{
    Account, InferenceError, Over, PolicyError, PolicyFacts, PolicyRow, RowAnswer, Shortage,
};

/// The result of an inference.
#[derive(Debug)]
pub struct InferenceResult {
    /// One answer for each row, in order.
    pub answers: Result<Vec<RowAnswer>, PolicyError>,
    /// Duration of the call.
    pub took: Duration,
    /// Memory shortages that the policy has reported since it was made.
    pub shortage: Shortage,
}

/// Sends the answer to an inference, exactly once. If the thread dies, dropping it sends an error.
pub struct InferenceReply(Option<Box<dyn FnOnce(InferenceResult) + Send>>);

impl InferenceReply {
    /// Creates the reply of a request whose result goes to `give`.
    pub fn new(give: impl FnOnce(InferenceResult) + Send + 'static) -> Self {
        Self(Some(Box::new(give)))
    }

    /// Sends the result.
    pub fn give(mut self, result: InferenceResult) {
        if let Some(give) = self.0.take() {
            give(result);
        }
    }
}

impl Drop for InferenceReply {
    fn drop(&mut self) {
        if let Some(give) = self.0.take() {
            give(InferenceResult {
                answers: Err(gone()),
                took: Duration::ZERO,
                shortage: Shortage::default(),
            });
        }
    }
}

/// A request to the inference thread.
pub enum InferenceRequest {
    /// Makes the policy of a job.
    Make {
        /// The job.
        job: Box<Job>,
        /// Its environments.
        env: Box<EnvSpec>,
        /// Folder for files that the policy keeps.
        folder: PathBuf,
        /// Where the properties of the policy go.
        reply: Sender<Result<PolicyFacts, PolicyError>>,
    },
    /// Announces the number of rows.
    WarmUp {
        /// Usual number of rows.
        rows: usize,
        /// Maximum number of rows.
        max_rows: usize,
    },
    /// Asks for answers.
    Infer {
        /// One row for each environment.
        rows: Vec<PolicyRow>,
        /// Maximum number of rows in one call of the policy.
        max_batch: usize,
        /// Where the answers go.
        reply: InferenceReply,
    },
    /// An episode is over.
    End(Over, Sender<Result<Account, PolicyError>>),
}

/// Returns the error of a thread that has ended.
pub fn gone() -> PolicyError {
    InferenceError::ThreadEnded.into()
}
