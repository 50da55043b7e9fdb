//! The end of a Python process: a child of this process, or one that a fork server has started,
//! which is the server's child. The server tells PID and status through a pipe.
//!
//! The server reaps its child when this side closes the pipe. Until then the PID is that of the
//! process and of its group, as with a child.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};

use crate::clock::timespec;

/// How the end of a process is learnt.
pub enum ProcessEnd {
    /// It is a child of this process.
    Child {
        /// The child.
        child: Child,
        /// Its group.
        group: Pid,
    },
    /// It is the child of a fork server.
    Forked(ForkedEnd),
}

/// What the fork server has told.
#[derive(Default)]
pub struct ForkedEnd {
    pid: Option<Pid>,
    outcome: Option<Outcome>,
    /// True if it is to be killed when its PID is there.
    is_unwanted: bool,
}

/// The end of a forked process.
enum Outcome {
    Ended(ExitStatus),
    /// The system refused to fork.
    NotForked(io::Error),
    /// The server ended first, which kills its children.
    ServerEnded,
}

impl ProcessEnd {
    /// Takes a child that leads its own group; returns its pidfd too.
    ///
    /// # Errors
    /// Returns the system's error if there is no pidfd; the child is gone then.
    pub fn of_child(mut child: Child) -> io::Result<(Self, OwnedFd)> {
        let group = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .ok_or(io::ErrorKind::InvalidData)?;
        let pidfd = pidfd_open(group, PidfdFlags::empty()).inspect_err(|_| {
            // Kernels before 5.3 have no pidfds; the child must not outlive this error.
            child.kill().and_then(|()| child.wait()).ok();
        })?;
        Ok((Self::Child { child, group }, pidfd))
    }

    /// Takes a process that a fork server was asked for.
    pub fn of_forked() -> Self {
        Self::Forked(ForkedEnd::default())
    }

    /// Returns the PID; 0 if it is not known yet.
    pub fn pid(&self) -> u32 {
        match self {
            Self::Child { child, .. } => child.id(),
            Self::Forked(forked) => forked
                .pid
                .map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
        }
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self, exit: &OwnedFd) -> bool {
        match self {
            Self::Child { .. } => is_readable(exit, Duration::ZERO),
            Self::Forked(forked) => {
                forked.listen(exit);
                forked.outcome.is_some()
            }
        }
    }

    /// Kills the process's group.
    pub fn kill(&mut self, exit: &OwnedFd) {
        let group = match self {
            Self::Child { group, .. } => Some(*group),
            Self::Forked(forked) => {
                forked.listen(exit);
                forked.is_unwanted = true;
                forked.pid
            }
        };
        if let Some(group) = group {
            kill_process_group(group, Signal::KILL).ok();
        }
    }

    /// Reaps the process if it has ended; returns whether it has.
    pub fn reap(&mut self, exit: &OwnedFd) -> bool {
        match self {
            Self::Child { child, .. } => child.try_wait().ok().flatten().is_some(),
            Self::Forked(forked) => {
                let was_known = forked.pid.is_some();
                forked.listen(exit);
                if let Some(group) = forked.pid.filter(|_| forked.is_unwanted && !was_known) {
                    kill_process_group(group, Signal::KILL).ok();
                }
                forked.outcome.is_some()
            }
        }
    }

    /// Returns how the process ended, as a clause, without reaping it.
    pub fn describe(&self) -> String {
        match self {
            Self::Child { group, .. } => {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
                match waitid(WaitId::Pid(*group), options) {
                    Ok(Some(status)) => clause(status.exit_status(), status.terminating_signal()),
                    _ => CLOSED.to_owned(),
                }
            }
            Self::Forked(forked) => match &forked.outcome {
                Some(Outcome::Ended(status)) => clause(status.code(), status.signal()),
                Some(Outcome::NotForked(err)) => format!("cannot be forked: {err}"),
                Some(Outcome::ServerEnded) if forked.pid.is_none() => {
                    "was not started by its fork server".to_owned()
                }
                Some(Outcome::ServerEnded) => "was killed by the end of its fork server".to_owned(),
                None => CLOSED.to_owned(),
            },
        }
    }
}

/// What is known of a process that has closed its socket and not ended.
const CLOSED: &str = "closed its connection";

impl ForkedEnd {
    /// Reads what the server has told: the PID, then the status.
    fn listen(&mut self, exit: &OwnedFd) {
        let mut number = [0; 4];
        while self.outcome.is_none() {
            match rustix::io::read(exit, &mut number) {
                // The server writes each number at once.
                Ok(4) => self.take(i32::from_ne_bytes(number)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => self.outcome = Some(Outcome::ServerEnded),
            }
        }
    }

    fn take(&mut self, number: i32) {
        match self.pid {
            Some(_) => self.outcome = Some(Outcome::Ended(ExitStatus::from_raw(number))),
            None if number > 0 => self.pid = Pid::from_raw(number),
            None => {
                let err = io::Error::from_raw_os_error(number.saturating_neg());
                self.outcome = Some(Outcome::NotForked(err));
            }
        }
    }
}

/// Describes an exit code or a signal.
fn clause(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => format!("was killed by {}", signal_name(signal)),
        (None, None) => "ended".to_owned(),
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGILL => "SIGILL",
        libc::SIGINT => "SIGINT",
        libc::SIGKILL => "SIGKILL",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGTERM => "SIGTERM",
        _ => return ExitStatus::from_raw(number).to_string(),
    };
    name.to_owned()
}

/// Returns whether a descriptor becomes readable within a limit.
pub(super) fn is_readable(fd: impl AsFd, limit: Duration) -> bool {
    let mut ready = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut ready, Some(&timespec(limit))).is_ok_and(|count| count > 0)
}
