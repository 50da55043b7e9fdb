//! Why a tracker ends before its run.

use std::io;
use std::path::PathBuf;

use crate::env::python::args::InterpreterError;

/// Why a tracker has ended before its run.
#[derive(Debug, thiserror::Error)]
pub enum TrackerError {
    /// The interpreter cannot be used.
    #[error("`{}`: {err}", python.display())]
    Interpreter {
        /// What the user named.
        python: PathBuf,
        /// What is wrong with it.
        #[source]
        err: InterpreterError,
    },
    /// The process cannot be started.
    #[error("cannot start `{}`: {err}", python.display())]
    Start {
        /// The interpreter.
        python: PathBuf,
        /// The system's error.
        #[source]
        err: io::Error,
    },
    /// A file cannot be written, or a thread cannot be started.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The process does not take a message.
    #[error("it takes no message: {0}")]
    Packet(#[source] io::Error),
    /// The package gave up.
    #[error("{0}")]
    Failed(String),
    /// The process is gone.
    #[error("its process {ending}{}{last}", if last.is_empty() { "" } else { "; its last line: " })]
    Ended {
        /// How it ended, as a clause.
        ending: String,
        /// Its last line of output; may be empty.
        last: String,
    },
    /// The run has ended, and its time is up.
    #[error("it has not taken everything in time")]
    Late,
}
