//! A started rank.

use std::time::SystemTime;

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::process::exit::Exit;
use crate::process::pre_exec;
use crate::process::usage::Usage;

/// A started rank: the leader of a session and a process group that both carry its pid.
///
/// [`Rank::peek`] does not reap, so the pid stays ours until [`Rank::reap`] and [`Rank::signal`] cannot hit a stranger
/// that got the number later.
#[derive(Debug)]
pub struct Rank {
    pid: Pid,
    ended: Option<Ended>,
}

/// How and when a rank ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// Code or signal.
    pub exit: Exit,
    /// What it used; unknown of a child that is not ours any more.
    pub usage: Option<Usage>,
    /// When the launcher saw it.
    pub at: SystemTime,
}

impl Rank {
    /// The rank that this child is, or will be as soon as it has made its session.
    pub(crate) fn new(pid: Pid) -> Rank {
        Rank { pid, ended: None }
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
    pub fn peek(&mut self, now: SystemTime) -> Option<Ended> {
        if self.ended.is_some() {
            return None;
        }
        let (exit, usage) = match pre_exec::ended(self.pid) {
            Ok(ended) => ended.map(|(exit, usage)| (exit, Some(usage)))?,
            // Not our child any more: nothing will ever tell how it ended.
            Err(_) => (Exit::Signal(libc::SIGKILL), None),
        };
        self.ended = Some(Ended { exit, usage, at: now });
        self.ended
    }

    /// Sends `signal` to the whole process group, also when its leader has ended. A group that is gone is no error.
    pub fn signal(&self, signal: i32) {
        pre_exec::signal_group(self.pid, signal);
    }

    /// Removes the zombie; waits if the leader still runs.
    pub fn reap(self) {
        // Any other error is "not our child", or a real-time signal, which `nix` has no name for: nothing is left to reap.
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;
    use crate::process::command::Stream;
    use crate::process::command::tests::{plan, start};

    impl Rank {
        /// Waits for its end and reaps it.
        pub(crate) fn wait(mut self) -> Exit {
            // An error is that of a real-time signal; the rank has ended all the same.
            waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).ok();
            let exit = self.peek(SystemTime::UNIX_EPOCH).expect("it has ended").exit;
            assert!(self.peek(SystemTime::UNIX_EPOCH).is_none(), "an end is told once");
            self.reap();
            exit
        }
    }

    fn sh(script: &str) -> Rank {
        start(&plan(&["/bin/sh", "-c", script]), Stream::Null).expect("/bin/sh starts")
    }

    #[test]
    fn an_exit_is_told_once() {
        assert_eq!(sh("exit 7").wait(), Exit::Code(7));
    }

    #[test]
    fn a_signal_reaches_the_group() {
        let rank = sh("sleep 100");
        rank.signal(libc::SIGTERM);
        assert_eq!(rank.wait(), Exit::Signal(libc::SIGTERM));
    }

    #[test]
    fn a_real_time_signal_reaches_the_group_as_it_is() {
        let rank = sh("exec sleep 100");
        rank.signal(40);
        assert_eq!(rank.wait(), Exit::Signal(40));
    }

    #[test]
    fn death_by_a_real_time_signal_is_seen() {
        assert_eq!(sh("kill -40 $$").wait(), Exit::Signal(40));
    }

    #[test]
    fn death_with_a_core_dump_is_death_by_its_signal() {
        assert_eq!(sh("kill -ABRT $$").wait(), Exit::Signal(libc::SIGABRT));
    }

    #[test]
    fn the_group_of_a_dead_leader_can_still_be_killed() {
        let rank = sh("sleep 100 >/dev/null 2>&1 & exit 0");
        waitid(Id::Pid(rank.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).expect("our child");
        rank.signal(libc::SIGKILL);
        assert_eq!(rank.wait(), Exit::Code(0));
    }
}
