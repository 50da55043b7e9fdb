//! Why a rank stops, or one of its jobs.

use std::fmt::Display;
use std::io;
use std::path::Path;

use jobs::launch::LockError;
use jobs::refusal::Refusal;

use crate::env::EnvError;
use crate::policy::PolicyError;
use crate::record::RecordError;
use tcpstore::StoreError;

/// The reason why a rank, or one of its jobs, ends before its work is done.
#[derive(Debug, thiserror::Error)]
pub enum Stop {
    /// A signal or another rank has asked for it.
    #[error("stopped by a signal")]
    Asked,
    /// The job was a single lease, which is another rank's now.
    #[error("another rank has taken it over, because this one made no progress for too long")]
    TakenOver,
    /// Another rank has taken over an episode that is in the dataset and not in the journal: the
    /// job has to open its dataset again.
    #[error("another rank has taken over an episode that this one has recorded")]
    Overtaken,
    /// The job has failed, and may be tried again.
    #[error("{0}")]
    Job(String),
    /// The GPU is lost, so that only a new process can go on.
    #[error("{0}")]
    GpuLost(String),
    /// The rank cannot go on, for example because the store is gone or the disk is full. A restart
    /// may help.
    #[error("{0}")]
    Rank(String),
    /// The command line, the jobs, the run folder or the device cannot be used: a restart would
    /// fail in the same way.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

impl Stop {
    /// Returns the reason for which one job fails.
    pub fn job(reason: impl Display) -> Self {
        Self::Job(reason.to_string())
    }

    /// Returns the reason for which the rank cannot go on: what failed, and why.
    pub fn rank(what: impl Display, err: impl Display) -> Self {
        Self::Rank(format!("{what}: {err}"))
    }

    /// Returns the reason for which the rank cannot go on: a file or folder cannot be written.
    pub fn not_written(path: &Path, err: io::Error) -> Self {
        Self::rank(format_args!("cannot write `{}`", path.display()), err)
    }
}

impl From<EnvError> for Stop {
    fn from(err: EnvError) -> Self {
        Self::job(err)
    }
}

impl From<PolicyError> for Stop {
    fn from(err: PolicyError) -> Self {
        match err {
            PolicyError::DeviceLost(reason) => Self::GpuLost(reason),
            err => Self::job(err),
        }
    }
}

impl From<RecordError> for Stop {
    fn from(err: RecordError) -> Self {
        Self::job(err)
    }
}

impl From<StoreError> for Stop {
    fn from(err: StoreError) -> Self {
        Self::Rank(err.to_string())
    }
}

impl From<LockError> for Stop {
    fn from(err: LockError) -> Self {
        match err {
            LockError::Refused(refusal) => Self::Refused(refusal),
            LockError::Failed(reason) => Self::Rank(reason.to_string()),
        }
    }
}
