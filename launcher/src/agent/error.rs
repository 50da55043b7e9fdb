//! Why a launch cannot begin.

use std::io;

use crate::logs::LogError;
use crate::store::StoreError;

/// Why a launch, or an attempt of it, cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The exits of ranks could not be seen.
    #[error("cannot listen to SIGCHLD")]
    Signals(#[source] io::Error),
    /// The launch would have no name.
    #[error("cannot name this launch: there is no /dev/urandom")]
    Launch(#[source] io::Error),
    /// The ranks would have no store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ranks would have no log files.
    #[error(transparent)]
    Logs(#[from] LogError),
}
