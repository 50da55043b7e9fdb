//! The process of a rank: its start beside others, its exit, signals and reaping.
//!
//! ```text
//! clone ─► child: own session, streams, … ─► exec     a failure is written into a pipe,
//! clone ─► child: own session, streams, … ─► exec     exec or the end of a child closes it
//! the pipe is read to its end ─► ranks, or the first that could not be started
//! ```
//! To wait for each rank before the next is created, as `std` does, would leave all CPUs but one
//! idle, and on a busy machine each rank would wait for its turn.

use std::io;

use nix::errno::Errno;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

use crate::process::command::ChildCommand;
use crate::process::exit::{Exit, Usage};
use crate::process::pre_exec::{self, Nursery};

/// A started rank: the leader of a session and of a process group, whose ids are its pid.
///
/// [`RankProcess::peek`] does not reap, so the pid stays reserved until [`RankProcess::reap`], and
/// [`RankProcess::signal`] cannot hit another process with the same pid.
#[derive(Debug)]
pub struct RankProcess {
    pid: Pid,
    has_ended: bool,
}

/// The number of ranks before one that could not be started, and the error.
pub type NotStarted = (usize, io::Error);

impl RankProcess {
    /// Starts these ranks, and waits until every one executes its program. If one cannot, the ranks
    /// after it are killed, as if ranks had been started one after another. Signals to the launcher
    /// wait meanwhile. The calling thread must live as long as the ranks, because the kernel kills
    /// them when it ends.
    pub fn start_all(
        commands: impl Iterator<Item = io::Result<ChildCommand>>,
    ) -> (Vec<RankProcess>, Option<NotStarted>) {
        let mut nursery = match Nursery::new() {
            Ok(nursery) => nursery,
            Err(err) => return (Vec::new(), Some((0, err))),
        };
        let (mut ranks, mut failed) = (Vec::new(), None);
        for (index, command) in commands.enumerate() {
            match command.and_then(|command| nursery.start(command)) {
                Ok(pid) => ranks.push(RankProcess {
                    pid,
                    has_ended: false,
                }),
                Err(err) => {
                    failed = Some((index, err));
                    break;
                }
            }
        }
        match nursery.wait() {
            Ok(first) => failed = first.or(failed),
            Err(err) => failed = Some((0, err)),
        }
        if let Some((first, _)) = &failed {
            for rank in ranks.split_off(*first) {
                rank.signal(libc::SIGKILL);
                rank.reap();
            }
        }
        (ranks, failed)
    }

    /// Starts a single process in the same way.
    pub fn start(command: ChildCommand) -> io::Result<RankProcess> {
        match RankProcess::start_all(std::iter::once(Ok(command))) {
            (mut started, None) => Ok(started.remove(0)),
            (_, Some((_, err))) => Err(err),
        }
    }

    /// Returns its pid, which is also the id of its process group and session.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Returns whether the launcher has noticed its end.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Checks whether the leader has ended. Returns its exit code or signal, only on the first call
    /// that finds it so, and the resources that it used; they are unknown of a process that is no
    /// longer a child of the launcher.
    pub fn peek(&mut self) -> Option<(Exit, Option<Usage>)> {
        if self.has_ended {
            return None;
        }
        let ended = match pre_exec::ended(self.pid) {
            Ok(ended) => ended.map(|(exit, usage)| (exit, Some(usage)))?,
            // Its exit status is lost.
            Err(_) => (Exit::Signal(libc::SIGKILL), None),
        };
        self.has_ended = true;
        Some(ended)
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
    use crate::process::command::tests::{command, plan, start};

    impl RankProcess {
        /// Waits for the end of the rank and reaps it.
        pub(crate) fn wait(mut self) -> Exit {
            // An error is due to a real-time signal; the rank has ended all the same.
            waitid(
                Id::Pid(self.pid),
                WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT,
            )
            .ok();
            let (exit, _) = self.peek().expect("it has ended");
            assert!(self.peek().is_none(), "an end is told once");
            self.reap();
            exit
        }
    }

    fn sh(script: &str) -> RankProcess {
        start(&plan(&["/bin/sh", "-c", script])).expect("/bin/sh starts")
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

    fn start_all(programs: &[&[&str]]) -> (Vec<RankProcess>, Option<NotStarted>) {
        let commands = programs.iter().map(|argv| command(&plan(argv), None));
        RankProcess::start_all(commands)
    }

    #[test]
    fn ranks_come_back_in_the_order_in_which_they_were_spawned() {
        let (ranks, failed) = start_all(&[
            &["sh", "-c", "exit 3"],
            &["sh", "-c", "exit 4"],
            &["sh", "-c", "exit 5"],
        ]);
        assert!(failed.is_none());
        assert_eq!(
            ranks.into_iter().map(RankProcess::wait).collect::<Vec<_>>(),
            [Exit::Code(3), Exit::Code(4), Exit::Code(5)]
        );
    }

    #[test]
    fn the_first_that_cannot_start_is_named_and_later_ones_are_gone() {
        let (ranks, failed) = start_all(&[
            &["sleep", "100"],
            &["/nonexistent"],
            &["sleep", "100"],
            &["/nonexistent"],
        ]);
        let (first, err) = failed.expect("two cannot");
        assert_eq!(
            (ranks.len(), first, err.kind()),
            (1, 1, io::ErrorKind::NotFound)
        );
        ranks[0].signal(libc::SIGTERM);
        assert_eq!(
            ranks.into_iter().map(RankProcess::wait).collect::<Vec<_>>(),
            [Exit::Signal(libc::SIGTERM)]
        );
    }

    #[test]
    fn nothing_to_start_is_nothing_started() {
        let (ranks, failed) = start_all(&[]);
        assert!(ranks.is_empty() && failed.is_none());
    }

    #[test]
    fn signals_that_arrive_meanwhile_are_handled_afterwards() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux has it");
            let line = status.lines().find(|line| line.starts_with("SigBlk:"));
            line.expect("a mask").to_owned()
        };
        let before = blocked();
        let nursery = Nursery::new().expect("signals can be blocked");
        assert_ne!(blocked(), before);
        drop(nursery);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn a_start_that_is_dropped_has_waited_for_its_children() {
        let command = command(&plan(&["true"]), None).expect("a command");
        let mut nursery = Nursery::new().expect("signals can be blocked");
        let pid = nursery.start(command).expect("a child");
        drop(nursery);
        // It executes `true` or has ended; either way it has left our memory.
        let program = std::fs::read_link(format!("/proc/{pid}/exe"));
        let ours = std::env::current_exe().expect("this program");
        assert!(program.is_err() || program.is_ok_and(|program| program != ours));
        RankProcess {
            pid,
            has_ended: false,
        }
        .reap();
    }
}
