//! The process of a rank after its start: its exit, signals and reaping.

use std::time::SystemTime;

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::process::exit::Exit;
use crate::process::pre_exec;
use crate::process::usage::Usage;

/// A started rank: the leader of a session and of a process group, whose ids are its pid.
///
/// [`RankProcess::peek`] does not reap, so the pid stays reserved until [`RankProcess::reap`], and
/// [`RankProcess::signal`] cannot hit another process with the same pid.
#[derive(Debug)]
pub struct RankProcess {
    pid: Pid,
    ended: Option<RankEnded>,
}

/// How and when a rank ended.
#[derive(Clone, Copy, Debug)]
pub struct RankEnded {
    /// Its exit code or signal.
    pub exit: Exit,
    /// The resources that it used; unknown for a process that is no longer a child of the launcher.
    pub usage: Option<Usage>,
    /// When the launcher noticed the exit.
    pub at: SystemTime,
}

impl RankProcess {
    /// Returns the rank for this child, which leads a session or is about to create it.
    pub(crate) fn new(pid: Pid) -> RankProcess {
        RankProcess { pid, ended: None }
    }

    /// Returns its pid, which is also the id of its process group and session.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns how it ended, if the launcher has noticed.
    pub fn ended(&self) -> Option<RankEnded> {
        self.ended
    }

    /// Checks whether the leader has ended. Returns `Some` only on the first call that finds it so.
    pub fn peek(&mut self, now: SystemTime) -> Option<RankEnded> {
        if self.ended.is_some() {
            return None;
        }
        let (exit, usage) = match pre_exec::ended(self.pid) {
            Ok(ended) => ended.map(|(exit, usage)| (exit, Some(usage)))?,
            // It is no longer a child of the launcher, so its exit status is lost.
            Err(_) => (Exit::Signal(libc::SIGKILL), None),
        };
        self.ended = Some(RankEnded {
            exit,
            usage,
            at: now,
        });
        self.ended
    }

    /// Sends `signal` to the whole process group, even if the leader has ended. A group that is
    /// gone is ignored.
    pub fn signal(&self, signal: i32) {
        pre_exec::signal_group(self.pid, signal);
    }

    /// Reaps the zombie; waits if the leader still runs.
    pub fn reap(self) {
        // Any other error means that it is not a child, or was killed by a real-time signal, for
        // which `nix` has no name: nothing is left to reap.
        while waitpid(self.pid, None) == Err(Errno::EINTR) {}
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{Id, WaitPidFlag, waitid};

    use super::*;
    use crate::process::command::OutputStream;
    use crate::process::command::tests::{plan, start};

    impl RankProcess {
        /// Waits for the end of the rank and reaps it.
        pub(crate) fn wait(mut self) -> Exit {
            // An error is due to a real-time signal; the rank has ended all the same.
            waitid(
                Id::Pid(self.pid),
                WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
            )
            .ok();
            let exit = self
                .peek(SystemTime::UNIX_EPOCH)
                .expect("it has ended")
                .exit;
            assert!(
                self.peek(SystemTime::UNIX_EPOCH).is_none(),
                "an end is told once"
            );
            self.reap();
            exit
        }
    }

    fn sh(script: &str) -> RankProcess {
        start(&plan(&["/bin/sh", "-c", script]), OutputStream::Null).expect("/bin/sh starts")
    }

    #[test]
    fn an_exit_is_told_once_whatever_it_is() {
        for (script, exit) in [
            ("exit 7", Exit::Code(7)),
            ("kill -40 $$", Exit::Signal(40)),
            // With a core dump.
            ("kill -ABRT $$", Exit::Signal(libc::SIGABRT)),
        ] {
            assert_eq!(sh(script).wait(), exit);
        }
    }

    #[test]
    fn a_signal_reaches_the_group_as_it_is() {
        for signal in [libc::SIGTERM, 40] {
            let rank = sh("exec sleep 100");
            rank.signal(signal);
            assert_eq!(rank.wait(), Exit::Signal(signal));
        }
    }

    #[test]
    fn the_group_of_a_dead_leader_can_still_be_killed() {
        let rank = sh("sleep 100 >/dev/null 2>&1 & exit 0");
        waitid(
            Id::Pid(rank.pid),
            WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
        )
        .expect("our child");
        rank.signal(libc::SIGKILL);
        assert_eq!(rank.wait(), Exit::Code(0));
    }
}
