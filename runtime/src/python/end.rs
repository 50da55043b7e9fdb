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

/// What is known of the end of a process.
pub struct ProcessEnd {
    /// Readable after the process has ended, even if another process keeps its pipes open. Of a
    /// process that a fork server has started, it is also readable when its PID is there:
    /// [`ProcessEnd::has_come`].
    pub exit: OwnedFd,
    /// The process, if it is a child of this one.
    child: Option<Child>,
    /// PID and group, which a fork server tells later.
    pid: Option<Pid>,
    /// How the child of a fork server has ended, as a clause.
    outcome: Option<String>,
    /// True if it is to be killed when its PID is there.
    is_unwanted: bool,
}

impl ProcessEnd {
    /// Takes a child that leads its own group.
    ///
    /// # Errors
    /// Returns the system's error if there is no pidfd; the child is gone then.
    pub fn of_child(mut child: Child) -> io::Result<Self> {
        let pid = Pid::from_child(&child);
        let exit = pidfd_open(pid, PidfdFlags::empty()).inspect_err(|_| {
            // Kernels before 5.3 have no pidfds; the child must not outlive this error.
            child.kill().and_then(|()| child.wait()).ok();
        })?;
        Ok(Self {
            child: Some(child),
            pid: Some(pid),
            ..Self::of_forked(exit)
        })
    }

    /// Takes a process that a fork server was asked for, and the pipe that it tells of it.
    pub fn of_forked(exit: OwnedFd) -> Self {
        Self {
            exit,
            child: None,
            pid: None,
            outcome: None,
            is_unwanted: false,
        }
    }

    /// Returns the PID; 0 if it is not known yet.
    pub fn pid(&self) -> u32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get() as u32)
    }

    /// Returns whether the process has ended.
    pub fn has_come(&mut self) -> bool {
        if self.child.is_some() {
            return is_readable(&self.exit, Duration::ZERO);
        }
        self.listen();
        self.outcome.is_some()
    }

    /// Kills the process and everything it started. It has not been reaped, so the number is still
    /// that of its group.
    pub fn kill(&mut self) {
        self.is_unwanted = true;
        if self.child.is_none() {
            self.listen();
        }
        if let Some(group) = self.pid {
            kill_process_group(group, Signal::KILL).ok();
        }
    }

    /// Reaps the process if it has ended; returns whether it has.
    pub fn reap(&mut self) -> bool {
        match &mut self.child {
            Some(child) => child.try_wait().ok().flatten().is_some(),
            None => self.has_come(),
        }
    }

    /// Returns how the process ended, as a clause, without reaping it.
    pub fn describe(&self) -> String {
        let status = self.pid.filter(|_| self.child.is_some()).and_then(|pid| {
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), options).ok().flatten()
        });
        let seen = status.map(|it| clause(it.exit_status(), it.terminating_signal()));
        seen.or_else(|| self.outcome.clone())
            .unwrap_or_else(|| "closed its connection".to_owned())
    }

    /// Reads what a fork server has told: the PID, then the status.
    fn listen(&mut self) {
        let mut number = [0; 4];
        while self.outcome.is_none() {
            match rustix::io::read(&self.exit, &mut number) {
                // The server writes each number at once.
                Ok(4) => self.take(i32::from_ne_bytes(number)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It has ended first, which kills its children.
                Ok(_) | Err(_) => {
                    let ended = match self.pid {
                        None => "was not started by its fork server",
                        Some(_) => "was killed by the end of its fork server",
                    };
                    self.outcome = Some(ended.to_owned());
                }
            }
        }
    }

    fn take(&mut self, number: i32) {
        match self.pid {
            Some(_) => {
                let status = ExitStatus::from_raw(number);
                self.outcome = Some(clause(status.code(), status.signal()));
            }
            None if number > 0 => {
                self.pid = Pid::from_raw(number);
                if self.is_unwanted {
                    self.kill();
                }
            }
            None => {
                let err = io::Error::from_raw_os_error(number.saturating_neg());
                self.outcome = Some(format!("cannot be forked: {err}"));
            }
        }
    }
}

/// Describes an exit code or a signal.
fn clause(code: Option<i32>, signal: Option<i32>) -> String {
    match (code, signal) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => match nix::sys::signal::Signal::try_from(signal) {
            Ok(signal) => format!("was killed by {signal}"),
            Err(_) => format!("was killed by signal {signal}"),
        },
        (None, None) => "ended".to_owned(),
    }
}

/// Returns whether a descriptor becomes readable within a limit.
pub fn is_readable(fd: impl AsFd, limit: Duration) -> bool {
    let mut ready = [PollFd::new(&fd, PollFlags::IN)];
    poll(&mut ready, Some(&timespec(limit))).is_ok_and(|count| count > 0)
}
