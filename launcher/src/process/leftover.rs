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
use std::fs::{self, File};
use std::io::Read as _;

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid};

use crate::process::children::children;
use crate::process::pre_exec::ended;
use crate::process::stat::{self, Stat};

/// Which leftovers to signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    All,
    /// Those outside the process groups of the ranks, because the groups have had the signal
    /// already.
    OutsideGroups,
}

/// Distinguishes the leftovers of one rank from those of others.
#[derive(Clone, Copy, Debug)]
pub struct Trace<'a> {
    /// The rank's pid, which is also its session. The rank has ended and has not been reaped.
    pub pid: i32,
    /// The `NAME=value` entry that only this rank has in its environment.
    pub mark: &'a str,
}

/// Finds the processes of this launch other than the ranks themselves. The default knows them by the
/// sessions of the ranks only.
#[derive(Debug, Default)]
pub struct Leftovers {
    adopts: bool,
    /// Children that the launcher had before, for instance those of a shell that replaced itself
    /// with the launcher.
    before: BTreeSet<i32>,
    spared: Spared,
    leaves_daemons: bool,
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
        let is_child = |pid: &i32| read(*pid).is_some_and(|stat| stat.parent == us);
        Leftovers {
            before: children().unwrap_or_else(|| pids().filter(is_child).collect()),
            adopts: set_child_subreaper(true).is_ok(),
            ..Leftovers::default()
        }
    }

    /// Spares these processes from now on, and no others.
    pub fn spare(&mut self, spared: Spared) {
        self.spared = spared;
    }

    /// Sets whether processes that have left the ranks' sessions are spared from now on.
    pub fn leave_daemons(&mut self, leaves_daemons: bool) {
        self.leaves_daemons = leaves_daemons;
    }

    /// Reaps adopted children that have ended and signals the living leftovers of `ranks`. Returns
    /// the number of living ones.
    pub fn signal(&self, ranks: &BTreeSet<i32>, reach: Reach, signal: Option<Signal>) -> usize {
        let has_ended = |&pid: &i32| matches!(ended(Pid::from_raw(pid)), Ok(Some(_)));
        if self.knows_all_children(ranks) && ranks.iter().all(has_ended) {
            return 0;
        }
        let is_left = |pid, stat: Stat| {
            let is_in_session = ranks.contains(&stat.session);
            let is_daemon = self.leaves_daemons && !is_in_session;
            let is_ours = is_in_session || self.is_adopted(pid, stat);
            is_ours && !is_daemon && !self.is_spared(pid, stat)
        };
        let living = self.living(ranks, is_left);
        let is_reached = |stat: Stat| reach == Reach::All || !ranks.contains(&stat.group);
        send(signal, living.iter().filter(|(_, stat)| is_reached(*stat)));
        living.len()
    }

    /// Does the same for the leftovers of a single rank of `ranks`.
    pub fn signal_of(
        &self,
        ranks: &BTreeSet<i32>,
        rank: Trace<'_>,
        signal: Option<Signal>,
    ) -> usize {
        if self.knows_all_children(ranks) {
            return 0;
        }
        let is_its_own = |pid, stat: Stat| {
            let is_marked = || self.is_adopted(pid, stat) && is_in_environment(pid, rank.mark);
            stat.session == rank.pid || is_marked()
        };
        let living = self.living(ranks, is_its_own);
        send(signal, living.iter());
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
            for pid in children().into_iter().flatten().filter(is_strange) {
                reap(Pid::from_raw(pid));
            }
            return;
        }
    }

    /// Returns whether it is certain that the launcher has no children but ranks and spared
    /// processes. Then a rank that has ended has left nothing behind.
    fn knows_all_children(&self, ranks: &BTreeSet<i32>) -> bool {
        let is_known = |pid: &i32| self.is_known(ranks, *pid);
        self.adopts && children().is_some_and(|children| children.iter().all(is_known))
    }

    fn is_known(&self, ranks: &BTreeSet<i32>, pid: i32) -> bool {
        ranks.contains(&pid) || self.before.contains(&pid) || self.spared.pids.contains(&pid)
    }

    fn is_spared(&self, pid: i32, stat: Stat) -> bool {
        let Spared { pids, mark } = &self.spared;
        pids.contains(&pid)
            || pids.contains(&stat.session)
            || (!pids.is_empty() && is_in_environment(pid, mark))
    }

    /// Returns the selected processes without the ranks, and reaps adopted children among them that
    /// have ended.
    fn living(
        &self,
        ranks: &BTreeSet<i32>,
        is_meant: impl Fn(i32, Stat) -> bool,
    ) -> Vec<(i32, Stat)> {
        let strangers = pids().filter(|pid| !ranks.contains(pid));
        let found = strangers.filter_map(|pid| Some((pid, read(pid)?)));
        found
            .filter(|(pid, stat)| is_meant(*pid, *stat) && !self.reaped(*pid, *stat))
            .collect()
    }

    fn is_adopted(&self, pid: i32, stat: Stat) -> bool {
        self.adopts && stat.parent == getpid().as_raw() && !self.before.contains(&pid)
    }

    /// Returns whether the process is dead, and reaps it if it is a child of the launcher.
    fn reaped(&self, pid: i32, stat: Stat) -> bool {
        let wait = || waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        let is_stranger = || !self.is_adopted(pid, stat);
        stat.is_dead && (is_stranger() || wait() != Ok(WaitStatus::StillAlive))
    }
}

/// Sends the signal, if there is one.
fn send<'a>(signal: Option<Signal>, to: impl Iterator<Item = &'a (i32, Stat)>) {
    for (pid, _) in to {
        // It may have ended in the meantime.
        signal.map(|signal| kill(Pid::from_raw(*pid), signal));
    }
}

/// Returns the processes of this machine.
pub(crate) fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Returns whether a process was started with this `NAME=value` entry; false if its environment
/// cannot be read.
fn is_in_environment(pid: i32, entry: &str) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut entries = environment.split(|&byte| byte == 0);
    entries.any(|found| found == entry.as_bytes())
}

/// Bytes to read of the file. Only its first fields are needed, and they end before this, as a name
/// has 64 bytes at most.
const STAT: usize = 256;

fn read(pid: i32) -> Option<Stat> {
    let mut bytes = [0; STAT];
    let mut file = File::open(format!("/proc/{pid}/stat")).ok()?;
    let length = file.read(&mut bytes).ok()?;
    stat::parse(&bytes[..length])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::command::OutputStream;
    use crate::process::command::tests::{plan, start};

    #[test]
    fn a_child_in_another_group_of_the_session_is_found_and_killed() {
        // With `set -m`, the background job gets a process group of its own.
        let script = "set -m; sleep 100 & wait";
        let rank =
            start(&plan(&["/bin/sh", "-c", script]), OutputStream::Null).expect("/bin/sh starts");
        let ranks = BTreeSet::from([rank.pid().as_raw()]);
        let signal = |signal| Leftovers::default().signal(&ranks, Reach::OutsideGroups, signal);
        rig::wait::until("a background job", || signal(None) > 0);
        assert_eq!(signal(Some(Signal::SIGKILL)), 1);
        rank.signal(libc::SIGKILL);
        rank.reap();
    }
}
