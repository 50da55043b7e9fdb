//! What can go wrong with the worker of a policy.

use std::fmt::Write as _;

use crate::python::{Cause, Loss};

/// Number of output lines in a message, and most letters of each.
const LINES: usize = 12;
const LONGEST_LINE: usize = 300;

/// The reason why a worker gave no actions.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The worker is gone, or of no use.
    #[error("{0}")]
    Lost(String),
    /// The call failed: the policy raised an exception, or gave an array that cannot be taken, or
    /// the call cannot be sent. The worker goes on.
    #[error("{0}")]
    Failed(String),
    /// Workers have failed too often.
    #[error("its worker failed {failures} times (max_restarts is {max_restarts}), at last: {last}")]
    GivenUp {
        /// Number of workers that failed.
        failures: u64,
        /// The setting.
        max_restarts: u64,
        /// What happened to the last one.
        last: String,
    },
    /// The evaluation is being stopped.
    #[error("the evaluation was stopped during {0}")]
    Stopped(String),
}

impl From<Loss> for WorkerError {
    /// Says why a worker is gone, with its last lines.
    fn from(loss: Loss) -> Self {
        let Loss {
            cause,
            text,
            during,
            lines,
            ..
        } = loss;
        let mut told = match cause {
            Cause::Refused => text,
            Cause::GaveUp(_) => format!("{during} {text}"),
            Cause::Seen => format!("its worker {text} during {during}"),
        };
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            let short: String = line.chars().take(LONGEST_LINE).collect();
            // Writing to a string cannot fail.
            write!(told, "\n    {short}").ok();
        }
        Self::Lost(told)
    }
}
