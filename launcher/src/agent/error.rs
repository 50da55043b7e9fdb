//! Errors that keep a launch from beginning.

use std::io;

use tcpstore::StoreError;

/// The reason why a launch, or an attempt of it, cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The SIGCHLD handler could not be installed, so the launcher would not see ranks exit.
    #[error("cannot listen to SIGCHLD")]
    Signals(#[source] io::Error),
    /// No launch id could be generated.
    #[error("cannot name this launch: there is no /dev/urandom")]
    Launch(#[source] io::Error),
    /// The ranks' store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log files or the pipe of the file timer could not be created, or the front port of `serve`
    /// not be opened.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}
