//! A fork server: a Python process that has imported what an environment needs, and forks the
//! processes with the copies (`worker/rrun_fork_server.py`).
//!
//! ```text
//! start ──stages──► importing ──hello──► forks whenever it is asked
//!                       └── refused, raised, exited ──► over: processes are started directly
//! ```
//!
//! It decides itself whether it may be forked. What is wrong with the imports is reported by the
//! processes that are started directly then.

use crate::python::{Loss, Module, Ready, Said, Variable, Worker};

/// The server's main module.
pub const MODULE: Module = (
    "rrun_fork_server",
    include_str!("worker/rrun_fork_server.py"),
);

/// A fork server that imports, or is ready.
pub struct ForkServer {
    /// Number of its process.
    pub id: u64,
    /// Its process.
    pub worker: Worker,
    /// The environment variables of the processes that it forks.
    pub variables: Vec<Variable>,
}

/// What a server has done.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// Nothing that anybody waits for.
    None,
    /// It begins a stage of its start.
    Stage(String),
    /// It can be asked for processes.
    Ready,
    /// It is of no use.
    Over,
}

impl ForkServer {
    /// Handles an event of its process.
    pub fn on(&mut self, ready: Ready) -> ServerEvent {
        match self.worker.on(ready) {
            Ok(Some(Said::Stage(stage))) => ServerEvent::Stage(stage),
            Ok(Some(Said::Hello(_))) => ServerEvent::Ready,
            Ok(_) => ServerEvent::None,
            Err(Loss { text, .. }) => {
                tracing::debug!(target: "env", "the fork server is not used: it {text}");
                ServerEvent::Over
            }
        }
    }
}
