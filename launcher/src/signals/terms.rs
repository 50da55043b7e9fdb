//! Receives SIGTERM together with its sender.
//!
//! SLURM sends SIGTERM to every process of a step, even to those in sessions of their own. A rank
//! that also got it from the launcher would begin to save its checkpoint a second time. `timeout`,
//! a script's trap or a user send it to the launcher only. So a launcher in a step does not install
//! a handler, but reads SIGTERM from a `signalfd`, which contains the sender's pid.

use std::fs;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::net::unix::pipe::Receiver;

/// Name of the SLURM process that starts, signals and ends the tasks of a step on a node.
const STEP_DAEMON: &str = "slurmstepd";

/// Size in bytes of a `struct signalfd_siginfo`, see signalfd(2).
const INFO: usize = 128;

/// A descriptor from which received SIGTERMs are read.
#[derive(Debug)]
pub struct TermSource(Receiver);

impl TermSource {
    /// Starts to receive SIGTERM. The signal is blocked in this thread, and in those that it starts
    /// from now on; ranks start with no signal blocked. Must be called on a runtime, on the only
    /// thread.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn listen() -> io::Result<TermSource> {
        let mask = SigSet::from_iter([Signal::SIGTERM]);
        mask.thread_block()?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(TermSource(Receiver::from_owned_fd_unchecked(fd.into())?))
    }

    /// Polls for the next SIGTERM. Returns whether it came from SLURM.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            // A runtime that is shutting down delivers nothing more.
            let Ok(()) = ready!(self.0.poll_read_ready(context)) else {
                return Poll::Pending;
            };
            let mut info = [0; INFO];
            match self.0.try_read(&mut info) {
                Ok(_) => return Poll::Ready(is_slurm(sender(&info))),
                Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Pending,
            }
        }
    }
}

/// Returns the field `ssi_pid`, which follows three other fields of four bytes.
fn sender(info: &[u8; INFO]) -> u32 {
    let (numbers, _) = info.as_chunks();
    numbers.get(3).copied().map_or(0, u32::from_ne_bytes)
}

/// Returns whether a process belongs to SLURM. A pid of 0 means that the sender is outside the
/// container of this launcher and its ranks.
fn is_slurm(pid: u32) -> bool {
    let is_step_daemon = |name: String| name.trim_end() == STEP_DAEMON;
    pid == 0 || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(is_step_daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_not_slurm() {
        assert!(!is_slurm(std::process::id()) && is_slurm(0));
    }
}
