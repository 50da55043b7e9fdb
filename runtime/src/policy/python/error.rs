//! What can go wrong with the worker of a policy.

use std::io;
use std::path::PathBuf;

/// Number of output lines in a message, and most letters of each.
const LINES: usize = 12;
const LONGEST_LINE: usize = 300;

/// The reason why a worker gave no actions. `during` is the call that was under way.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The interpreter cannot be started.
    #[error("`{}` cannot be started: {err}", python.display())]
    Spawn {
        /// The interpreter.
        python: PathBuf,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// The worker cannot make or use the policy, and has ended.
    #[error("{reason}{lines}")]
    Refused {
        /// What it says.
        reason: String,
        /// The last lines of its output.
        lines: OutputLines,
    },
    /// The worker has ended.
    #[error("its worker {ending} during {during}{lines}")]
    Ended {
        /// How it ended: exit code or signal.
        ending: String,
        /// The call.
        during: String,
        /// The last lines of its output.
        lines: OutputLines,
    },
    /// The worker did not answer in time, and was killed.
    #[error("its worker gave no answer for {seconds} s during {during}, and was killed{lines}")]
    Stalled {
        /// The time limit.
        seconds: f64,
        /// The call.
        during: String,
        /// The last lines of its output.
        lines: OutputLines,
    },
    /// The worker does not keep to the protocol, and was killed.
    #[error("its worker sent nonsense during {during}: {what}{lines}")]
    Nonsense {
        /// The beginning of what it sent.
        what: String,
        /// The call.
        during: String,
        /// The last lines of its output.
        lines: OutputLines,
    },
    /// The worker that was started in place of another has a different policy.
    #[error("its worker was restarted, and its policy has another horizon or other needs now")]
    OtherPolicy,
    /// The memory that is shared with the worker cannot be made or used.
    #[error("{bytes} bytes of shared memory: {err}")]
    Memory {
        /// Size of the memory.
        bytes: usize,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// One row is larger than the memory may be.
    #[error("a row takes {bytes} bytes, at most {most} are possible")]
    RowTooLarge {
        /// Bytes of a row, observation and actions.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The packet of a call is too long, which only long instructions can cause.
    #[error("the instructions of {rows} rows are too long for a call: {err}")]
    TooLong {
        /// Number of rows.
        rows: usize,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// The policy raised an exception, or gave an array that cannot be taken. The worker goes on.
    #[error("{reason}")]
    Raised {
        /// What the worker says.
        reason: String,
    },
    /// The policy keeps a state for each episode, which ended with its worker.
    #[error("its worker was restarted, which has ended the state that the policy kept")]
    StateLost,
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
    #[error("the evaluation was stopped during {during}")]
    Stopped {
        /// The call.
        during: String,
    },
}

impl WorkerError {
    /// Returns whether the worker goes on after this error.
    pub(super) fn leaves_worker(&self) -> bool {
        matches!(self, Self::Raised { .. } | Self::TooLong { .. })
    }
}

/// The last lines that a worker wrote, in the form in which messages end with them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputLines(Vec<String>);

impl OutputLines {
    /// Takes the last of these lines.
    pub(super) fn last_of(lines: &[String]) -> Self {
        let first = lines.len().saturating_sub(LINES);
        let short = |line: &String| line.chars().take(LONGEST_LINE).collect();
        Self(lines[first..].iter().map(short).collect())
    }
}

impl std::fmt::Display for OutputLines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}
