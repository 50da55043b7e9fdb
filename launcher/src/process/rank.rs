//! A started rank.

use std::io;
use std::process::{Child, Command};
use std::time::SystemTime;

use nix::errno::Errno;
use nix::sys::signal::killpg;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::process::exit::Exit;

/// A started rank: the leader of a session and a process group that both carry its pid.
///
/// [`Rank::peek`] does not reap, so the pid stays ours until [`Rank::reap`] and [`Rank::signal`] cannot hit a stranger
/// that got the number later.
#[derive(Debug)]
pub struct Rank {
    child: Child,
    pid: Pid,
    ended: Option<Ended>,
}

/// How and when a rank ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Code or signal.
    pub exit: Exit,
    /// When the launcher saw it.
    pub at: SystemTime,
}

impl Rank {
    /// Starts `command`, which [`crate::process::command::command`] made. Returns when its `exec` has succeeded.
    pub fn spawn(command: &mut Command) -> io::Result<Rank> {
        let child = command.spawn()?;
        let pid = Pid::from_raw(child.id().cast_signed());
        Ok(Rank { child, pid, ended: None })
    }

    /// Its pid, process group and session.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended, if that was seen.
    pub fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Looks once whether the leader has ended; `Some` only the first time that it is seen.
    pub fn peek(&mut self, now: SystemTime) -> Option<Exit> {
        if self.ended.is_some() {
            return None;
        }
        let exit = self.exit()?;
        self.ended = Some(Ended { exit, at: now });
        Some(exit)
    }

    fn exit(&mut self) -> Option<Exit> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        match waitid(Id::Pid(self.pid), flags) {
            Ok(WaitStatus::Exited(_, code)) => Some(Exit::Code(code)),
            Ok(WaitStatus::Signaled(_, signal, _)) => Some(Exit::Signal(signal as i32)),
            Ok(_) | Err(Errno::EINTR) => None,
            // `nix` has no name for a real-time signal; `std` tells, at the price of reaping now.
            Err(_) => match self.child.try_wait() {
                Ok(status) => status.map(Exit::from),
                // Not our child any more: nothing will ever tell how it ended.
                Err(_) => Some(Exit::Signal(libc::SIGKILL)),
            },
        }
    }

    /// Sends `signal` to the whole process group, also when its leader has ended. A group that is gone is no error.
    pub fn signal(&self, signal: i32) {
        // Between real-time signals and the group `nix` has no call; `kill` to the negative pid is the same thing.
        match nix::sys::signal::Signal::try_from(signal) {
            Ok(signal) => drop(killpg(self.pid, signal)),
            Err(_) => drop(killpg(self.pid, nix::sys::signal::Signal::SIGTERM)),
        }
    }

    /// Removes the zombie; waits if the leader still runs.
    pub fn reap(mut self) {
        // The only error is "not our child", and then there is nothing to reap.
        drop(self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::pre_exec;

    fn start(script: &str) -> Rank {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        pre_exec::prepare(&mut command);
        Rank::spawn(&mut command).expect("/bin/sh starts")
    }

    fn wait(rank: &mut Rank) -> Exit {
        waitid(Id::Pid(rank.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).ok();
        rank.peek(SystemTime::UNIX_EPOCH).expect("it has ended")
    }

    #[test]
    fn an_exit_is_told_once() {
        let mut rank = start("exit 7");
        assert_eq!(wait(&mut rank), Exit::Code(7));
        assert_eq!(rank.peek(SystemTime::UNIX_EPOCH), None);
        rank.reap();
    }

    #[test]
    fn a_signal_reaches_the_group() {
        let mut rank = start("sleep 100");
        rank.signal(libc::SIGTERM);
        assert_eq!(wait(&mut rank), Exit::Signal(libc::SIGTERM));
        rank.reap();
    }

    #[test]
    fn death_by_a_real_time_signal_is_seen() {
        let mut rank = start("kill -40 $$");
        assert_eq!(wait(&mut rank), Exit::Signal(40));
        rank.reap();
    }

    #[test]
    fn the_group_of_a_dead_leader_can_still_be_killed() {
        let mut rank = start("sleep 100 >/dev/null 2>&1 & echo $! >&2; exit 0");
        assert_eq!(wait(&mut rank), Exit::Code(0));
        rank.signal(libc::SIGKILL);
        rank.reap();
    }
}
