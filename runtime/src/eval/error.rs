//! Why a rank ended before its work was done.

use std::fmt::Display;

use jobs::launch::LockError;
use jobs::refusal::Refusal;

use crate::eval::lease::LeaseError;
use c10d::DistError;

/// The reason why a rank ended before its work was done.
#[derive(Debug, thiserror::Error)]
pub enum RankError {
    /// The command line, the jobs, the run folder or the device cannot be used: a retry would fail
    /// in the same way.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A restart may help, for example after the store is gone or the disk was full.
    #[error("{0}")]
    Failed(String),
}

impl RankError {
    /// Says what failed, and why.
    pub fn failed(what: impl Display, err: impl Display) -> Self {
        Self::Failed(format!("{what}: {err}"))
    }
}

impl From<LockError> for RankError {
    fn from(err: LockError) -> Self {
        match err {
            LockError::Refused(refusal) => Self::Refused(refusal),
            LockError::Failed(reason) => Self::Failed(reason.to_string()),
        }
    }
}

impl From<DistError> for RankError {
    fn from(err: DistError) -> Self {
        Self::Failed(err.to_string())
    }
}

impl From<LeaseError> for RankError {
    fn from(err: LeaseError) -> Self {
        Self::Failed(err.to_string())
    }
}
