//! The reasons why a simulator's process is given up, as clauses about the process.

use rustix::io::Errno;

use crate::env::python::hello::{Hello, HelloError};
use crate::env::python::layout::LayoutError;

/// The reason why a process cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// Its description of the environment is invalid.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// It describes another environment than the first process.
    #[error("shows something else than the first: {0:?}")]
    OtherEnvironment(Box<Hello>),
    /// Its memory would be too large.
    #[error(transparent)]
    MemoryLayout(#[from] LayoutError),
    /// Its memory cannot be made.
    #[error("cannot be given {bytes} bytes of shared memory: {reason}")]
    Memory {
        /// Bytes of the memory.
        bytes: usize,
        /// The error of the system.
        reason: std::io::Error,
    },
    /// It takes no packet while it starts.
    #[error("does not read where its memory is: {0}")]
    DeafAtStart(Errno),
    /// It answered a batch that it was not given.
    #[error("answered work {sequence}, which it was not given")]
    UnknownBatch {
        /// Number of the batch.
        sequence: u32,
    },
    /// Its replies do not belong to the commands.
    #[error("answered a different request")]
    OtherAnswer,
    /// Its memory cannot be read.
    #[error("has shared memory that cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// Its index of a copy is too large for a packet.
    #[error("has more than {} copies", u16::MAX)]
    Copies,
    /// It is up but has no memory.
    #[error("has no shared memory")]
    NoMemory,
    /// An action cannot be written into its memory.
    #[error("cannot be given its action: {0}")]
    Action(std::io::Error),
}
