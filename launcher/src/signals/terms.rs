//! SIGTERM, and who sent it.
//!
//! SLURM sends it to every process of a step, sessions of their own included: a rank that got it from us as well would
//! begin to save its checkpoint a second time. `timeout`, a script's trap or a person send it to us alone. So a launcher in
//! a step reads SIGTERM from a `signalfd`, which tells the sender's pid, instead of handling it.

use std::fs;
use std::io::{self, ErrorKind};
use std::task::{Context, Poll, ready};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use tokio::net::unix::pipe::Receiver;

/// The process of SLURM that starts, signals and ends the tasks of a step on a node.
const STEP_DAEMON: &str = "slurmstepd";

/// Bytes of a `struct signalfd_siginfo`, see signalfd(2).
const INFO: usize = 128;

/// SIGTERM as it arrives: a descriptor that is read like a pipe.
#[derive(Debug)]
pub struct Terms(Receiver);

impl Terms {
    /// Listens from now on. SIGTERM is blocked in this thread, and in those that it starts from now on; a rank begins with
    /// nothing blocked. Must be called on a runtime, on the only thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen() -> io::Result<Terms> {
        let mask = SigSet::from_iter([Signal::SIGTERM]);
        mask.thread_block()?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        Ok(Terms(Receiver::from_owned_fd_unchecked(fd.into())?))
    }

    /// Whether the next one to arrive came from SLURM.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<bool> {
        loop {
            // A runtime that is shut down has nothing more to tell.
            let Ok(()) = ready!(self.0.poll_read_ready(context)) else { return Poll::Pending };
            let mut info = [0; INFO];
            match self.0.try_read(&mut info) {
                Ok(_) => return Poll::Ready(is_slurm(sender(&info))),
                Err(err) if err.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Pending,
            }
        }
    }
}

/// Its field `ssi_pid`, after three others of four bytes.
fn sender(info: &[u8; INFO]) -> u32 {
    let (numbers, _) = info.as_chunks();
    numbers.get(3).copied().map_or(0, u32::from_ne_bytes)
}

/// A sender without a pid is outside of the container that this launcher and its ranks are in.
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
