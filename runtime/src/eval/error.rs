//! Why a rank ended before its work was done.

use std::io;
use std::path::PathBuf;

use jobs::launch::LockError;
use jobs::refusal::Refusal;

use crate::eval::lease::LeaseError;
use c10d::DistError;

/// The reason why a rank ended before its work was done.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// The command line, the jobs, the run folder or the device cannot be used.
    #[error(transparent)]
    Setup(#[from] Refusal),
    /// The run folder cannot be locked for this launch.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The launch has no name, and no random one can be made.
    #[error("cannot name this launch: {0}")]
    LaunchName(#[source] io::Error),
    /// Rank 0 has not told in time whether it has locked the run folder.
    #[error("rank 0 has not taken the run folder: {0}")]
    NotTold(#[source] DistError),
    /// Rank 0 could not lock the run folder; the text is its reason.
    #[error("{0}")]
    RefusedByRankZero(String),
    /// The handlers of the signals cannot be installed.
    #[error(transparent)]
    Signals(#[from] ctrlc::Error),
    /// The store of the launch does not answer.
    #[error(transparent)]
    Store(#[from] DistError),
    /// A thread cannot be started.
    #[error("no thread for {owner}: {err}")]
    Thread {
        /// Who needs it.
        owner: &'static str,
        /// The error of the system.
        #[source]
        err: io::Error,
    },
    /// The journals of the run cannot be read.
    #[error("cannot read the journals in `{}`: {err}", folder.display())]
    Journals {
        /// The folder of the journals.
        folder: PathBuf,
        /// The I/O error.
        #[source]
        err: io::Error,
    },
    /// The journal of this rank cannot be written.
    #[error("cannot write `{}`: {err}", path.display())]
    Journal {
        /// Path of the journal.
        path: PathBuf,
        /// The I/O error.
        #[source]
        err: io::Error,
    },
    /// The store of the leases failed.
    #[error(transparent)]
    Leases(#[from] LeaseError),
    /// This process can no longer use its GPU.
    #[error("rank {rank} ends: {reason}")]
    GpuLost {
        /// Global rank.
        rank: usize,
        /// The driver's reason.
        reason: String,
    },
    /// The report cannot be written.
    #[error("cannot write the report into `{}`: {err}", folder.display())]
    Report {
        /// The run folder.
        folder: PathBuf,
        /// The I/O error.
        #[source]
        err: io::Error,
    },
}

impl RankError {
    /// Returns whether a retry would fail in the same way. A restart may help in the other cases,
    /// for example after the store is gone or the disk was full.
    pub fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Setup(_) | Self::RefusedByRankZero(_) | Self::Lock(LockError::Refused(_))
        )
    }
}
