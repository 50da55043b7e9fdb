//! A fork server: a Python process that has imported what an environment needs, and forks the
//! processes with the copies (`worker/rrun_fork_server.py`).
//!
//! ```text
//! start ──stages──► importing ──ready──► forks whenever it is asked
//!                       └── refused, raised, exited ──► over: processes are started directly
//! ```
//!
//! It decides itself whether it may be forked. What is wrong with the imports is reported by the
//! processes that are started directly then.

use std::io;
use std::os::fd::AsRawFd as _;
use std::path::Path;

use serde_json::Value;

use crate::env::python::host::ReadyDescriptor;
use crate::env::python::message::Packet;
use crate::env::python::process::{PythonProcess, ReceivedPacket};
use crate::env::python::variables::Variable;

/// The server's main module.
pub const MODULE: (&str, &str) = (
    "rrun_fork_server",
    include_str!("worker/rrun_fork_server.py"),
);

/// A fork server that imports, or is ready.
pub struct ForkServer {
    /// Its process.
    pub process: PythonProcess,
    /// The environment variables of the processes that it forks.
    pub variables: Vec<Variable>,
    /// Whether it can be asked for processes.
    pub is_ready: bool,
    stages_left: usize,
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
    /// It is of no use, for this reason.
    Over(String),
}

impl ForkServer {
    /// Starts a server and sends it its configuration.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn start(
        id: u64,
        python: &Path,
        label: &str,
        variables: Vec<Variable>,
        mut config: Value,
        stages: usize,
    ) -> io::Result<Self> {
        let mut process = PythonProcess::start(id, python, label, &variables)?;
        // Memory for which it has no use; it must not hand it on to its children.
        config["memory_fd"] = process.memfd.as_raw_fd().into();
        if let Err(err) = process.send(config.to_string().as_bytes()) {
            process.kill();
            return Err(err.into());
        }
        Ok(Self {
            process,
            variables,
            is_ready: false,
            stages_left: stages,
        })
    }

    /// Handles an event of its process.
    pub fn on(&mut self, ready: ReadyDescriptor, buffer: &mut Vec<u8>) -> ServerEvent {
        if ready == ReadyDescriptor::Output {
            return ServerEvent::None;
        }
        let over = |reason: String| ServerEvent::Over(reason);
        match self.process.receive(buffer) {
            ReceivedPacket::Packet(Ok(Packet::Stage(stage))) if self.stages_left > 0 => {
                self.stages_left -= 1;
                ServerEvent::Stage(stage)
            }
            ReceivedPacket::Packet(Ok(Packet::Ready)) if !self.is_ready => {
                (self.is_ready, self.stages_left) = (true, 0);
                ServerEvent::Ready
            }
            ReceivedPacket::Packet(Ok(Packet::Refused(reason))) => over(reason),
            ReceivedPacket::Packet(_) => over("it has sent something unexpected".to_owned()),
            ReceivedPacket::Nothing if ready == ReadyDescriptor::Socket => ServerEvent::None,
            ReceivedPacket::Nothing | ReceivedPacket::Closed => {
                over(format!("it {}", self.process.ending()))
            }
        }
    }
}
