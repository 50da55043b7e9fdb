//! Finds and ends the processes that ranks left behind. They are found in `/proc` by the session of
//! the rank, or, if the launcher is a subreaper, because they became its children when their
//! parents died.
//!
//! The leftovers of a single rank are the processes of its session, and those children of the
//! launcher that have the rank's mark in their environment. An orphan that has left the session
//! could otherwise belong to any rank.
//!
//! A daemon, that is an orphan that has left the sessions of all ranks, may be left alone: after a
//! success, as torchrun does.
//!
//! This module never reaps a rank: it checks which child has ended before it waits for it.
//!
//! If the launcher is a subreaper, all ranks have ended and it has no other child, then there are
//! no leftovers, because everything that a rank started is a child of the launcher or descends from
//! one. In that case `/proc`, which lists every process of the machine, need not be searched.

use std::collections::BTreeSet;

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use crate::process::pre_exec::ended;
use crate::process::proc::{self, Process};

/// Which leftovers to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose<'a> {
    /// Those of all ranks.
    All,
    /// Those outside the process groups of the ranks, because the groups have had the signal
    /// already.
    OutsideGroups,
    /// Those of one rank, or of the model server.
    One {
        /// Its pid, which is also its session. It has ended and has not been reaped.
        pid: i32,
        /// The `NAME=value` entry that only it has in its environment.
        mark: &'a str,
    },
}

/// Finds the processes of this launch other than the ranks themselves. The default knows them by the
/// sessions of the ranks only.
#[derive(Debug, Default)]
pub struct Leftovers {
    adopts: bool,
    /// Children that the launcher had before, for instance those of a shell that replaced itself
    /// with the launcher.
    before: BTreeSet<i32>,
    /// Processes that are no leftovers.
    pub spared: Spared,
    /// Whether processes that have left the ranks' sessions are spared, too.
    pub leaves_daemons: bool,
}

/// Processes that run beside the ranks and are not leftovers: children of the launcher, their
/// sessions, and adopted processes with this mark in their environment.
#[derive(Clone, Debug, Default)]
pub struct Spared {
    /// Pids of the children.
    pub pids: BTreeSet<i32>,
    /// The `NAME=value` entry that all of their descendants have in their environment.
    pub mark: String,
}

impl Leftovers {
    /// Makes this process a subreaper, so that orphaned descendants become its children and
    /// leftovers outside the ranks' sessions are found too. Allows one launch per process, because
    /// every child that is not a rank counts as a leftover.
    pub fn adopt() -> Leftovers {
        let us = getpid().as_raw();
        let children = || proc::all().filter(|process| process.parent == us);
        let found = || children().map(|process| process.pid).collect();
        Leftovers {
            before: proc::children().unwrap_or_else(found),
            adopts: set_child_subreaper(true).is_ok(),
            ..Leftovers::default()
        }
    }

    /// Reaps adopted children that have ended and signals the living leftovers of `ranks`. Returns
    /// the number of living ones; those outside the groups count like all others.
    pub fn signal(&self, ranks: &BTreeSet<i32>, whose: Whose<'_>, signal: Option<Signal>) -> usize {
        let has_ended = |&pid: &i32| matches!(ended(Pid::from_raw(pid)), Ok(Some(_)));
        let have_ended = || matches!(whose, Whose::One { .. }) || ranks.iter().all(has_ended);
        if self.knows_all_children(ranks) && have_ended() {
            return 0;
        }
        let living = self.living(ranks, |process| match whose {
            Whose::One { pid, mark } => {
                process.session == pid || (self.is_adopted(process) && process.was_given(mark))
            }
            Whose::All | Whose::OutsideGroups => {
                let is_in_session = ranks.contains(&process.session);
                let is_daemon = self.leaves_daemons && !is_in_session;
                let is_ours = is_in_session || self.is_adopted(process);
                is_ours && !is_daemon && !self.is_spared(process)
            }
        });
        for process in &living {
            if whose != Whose::OutsideGroups || !ranks.contains(&process.group) {
                // It may have ended in the meantime.
                signal.map(|signal| kill(Pid::from_raw(process.pid), signal));
            }
        }
        living.len()
    }

    /// Reaps adopted children that have ended.
    pub fn reap(&self, ranks: &BTreeSet<i32>) {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        let is_strange = |pid: &i32| !self.is_known(ranks, *pid);
        // A thread that reads stacks may have stopped some of them, which only that thread waits for.
        let reap = |pid| matches!(ended(pid), Ok(Some(_))) && waitpid(pid, None).is_ok();
        while self.adopts
            && let Ok(status) = waitid(Id::All, flags)
            && let Some(pid) = status.pid()
        {
            if is_strange(&pid.as_raw()) && reap(pid) {
                continue;
            }
            // `waitid` keeps returning the zombie of a rank, which is not reaped here, so the other
            // children are waited for one by one.
            for pid in proc::children().into_iter().flatten().filter(is_strange) {
                reap(Pid::from_raw(pid));
            }
            return;
        }
    }

    /// Returns whether it is certain that the launcher has no children but ranks and spared
    /// processes. Then a rank that has ended has left nothing behind.
    fn knows_all_children(&self, ranks: &BTreeSet<i32>) -> bool {
        let is_known = |pid: &i32| self.is_known(ranks, *pid);
        self.adopts && proc::children().is_some_and(|children| children.iter().all(is_known))
    }

    fn is_known(&self, ranks: &BTreeSet<i32>, pid: i32) -> bool {
        ranks.contains(&pid) || self.before.contains(&pid) || self.spared.pids.contains(&pid)
    }

    fn is_spared(&self, process: &Process) -> bool {
        let Spared { pids, mark } = &self.spared;
        pids.contains(&process.pid)
            || pids.contains(&process.session)
            || (!pids.is_empty() && process.was_given(mark))
    }

    /// Returns the selected processes without the ranks, and reaps adopted children among them that
    /// have ended.
    fn living(&self, ranks: &BTreeSet<i32>, is_meant: impl Fn(&Process) -> bool) -> Vec<Process> {
        let strangers = proc::all().filter(|process| !ranks.contains(&process.pid));
        strangers
            .filter(|process| is_meant(process) && !self.reaped(process))
            .collect()
    }

    fn is_adopted(&self, process: &Process) -> bool {
        self.adopts && process.parent == getpid().as_raw() && !self.before.contains(&process.pid)
    }

    /// Returns whether the process is dead, and reaps it if it is a child of the launcher.
    fn reaped(&self, process: &Process) -> bool {
        let wait = || waitpid(Pid::from_raw(process.pid), Some(WaitPidFlag::WNOHANG));
        process.is_dead && (!self.is_adopted(process) || wait() != Ok(WaitStatus::StillAlive))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command::tests::{plan, start};

    #[test]
    fn a_child_in_another_group_of_the_session_is_found_and_killed() {
        // With `set -m`, the background job gets a process group of its own.
        let script = "set -m; sleep 100 & wait";
        let rank = start(&plan(&["/bin/sh", "-c", script])).expect("/bin/sh starts");
        let ranks = BTreeSet::from([rank.pid().as_raw()]);
        let signal = |signal| Leftovers::default().signal(&ranks, Whose::OutsideGroups, signal);
        rig::wait::until("a background job", || signal(None) > 0);
        assert_eq!(signal(Some(Signal::SIGKILL)), 1);
        rank.signal(libc::SIGKILL);
        rank.reap();
    }
}
