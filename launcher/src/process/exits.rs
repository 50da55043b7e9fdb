//! Which ranks have ended, without a question to each of them: every rank has a pidfd, and one
//! epoll instance knows those that became readable.
//!
//! When a rank ends, the others are not asked. A rank that cannot be watched (the kernel is older
//! than 5.3, or descriptors are scarce) is asked each time instead.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

use nix::unistd::Pid;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{self, PidfdFlags};

use crate::process::files::FileLimit;

/// Exits that one system call reports.
const AT_A_TIME: usize = 64;

/// The share of this process's open files that pidfds may take: one of four. Connections of the
/// store need the most, one or two for each rank.
const SHARE: u64 = 4;

/// The ranks that run, by their indexes.
#[derive(Debug, Default)]
pub struct ExitWatch {
    epoll: Option<OwnedFd>,
    /// How many ranks may be watched; `None` before the first.
    room: Option<u64>,
    watched: BTreeMap<usize, OwnedFd>,
    /// The ranks that have to be asked.
    unwatched: BTreeSet<usize>,
}

impl ExitWatch {
    /// Begins to watch the rank at `index`, a child that has not been reaped. A rank that was
    /// watched at this index before is forgotten.
    pub fn add(&mut self, index: usize, pid: Pid) {
        let room = self
            .room
            .get_or_insert_with(|| FileLimit::current().map_or(0, |limit| limit.soft / SHARE));
        let watched = match (self.watched.len() as u64) < *room {
            true => self.watch(index, pid),
            false => Err(Errno::MFILE),
        };
        match watched {
            Ok(pidfd) => {
                self.unwatched.remove(&index);
                self.watched.insert(index, pidfd);
            }
            Err(err) => {
                tracing::debug!(%err, index, "a rank is asked whether it has ended");
                self.watched.remove(&index);
                self.unwatched.insert(index);
            }
        }
    }

    fn watch(&mut self, index: usize, pid: Pid) -> rustix::io::Result<OwnedFd> {
        let pid = process::Pid::from_raw(pid.as_raw()).ok_or(Errno::SRCH)?;
        let pidfd = process::pidfd_open(pid, PidfdFlags::empty())?;
        let epoll = match &mut self.epoll {
            Some(epoll) => epoll,
            none => none.insert(epoll::create(epoll::CreateFlags::CLOEXEC)?),
        };
        // An exit is reported once; the descriptor is closed then.
        let (data, flags) = (
            epoll::EventData::new_u64(index as u64),
            epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
        );
        epoll::add(epoll, &pidfd, data, flags)?;
        Ok(pidfd)
    }

    /// Returns the indexes of ranks that may have ended since the last call, in their order. Each
    /// that was not watched is among them until [`ExitWatch::forget`].
    pub fn ended(&mut self) -> BTreeSet<usize> {
        let mut ended = self.unwatched.clone();
        let Some(epoll) = &self.epoll else {
            return ended;
        };
        let (now, mut events) = (Timespec::default(), Vec::with_capacity(AT_A_TIME));
        loop {
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(epoll, spare, Some(&now)) {
                Ok(0) | Err(_) => break,
                Ok(_) => ended.extend(events.drain(..).map(|event| event.data.u64() as usize)),
            }
        }
        self.watched.retain(|index, _| !ended.contains(index));
        ended
    }

    /// Asks the rank at `index` from now on, which lives although it was named.
    pub fn ask(&mut self, index: usize) {
        self.unwatched.insert(index);
    }

    /// Stops asking the rank at `index`, which has ended.
    pub fn forget(&mut self, index: usize) {
        self.unwatched.remove(&index);
    }
}

#[cfg(test)]
mod tests {
    use rig::wait::until;

    use super::*;
    use crate::process::command::OutputStream;
    use crate::process::command::tests::{plan, start};
    use crate::process::rank::RankProcess;

    fn sh(script: &str) -> RankProcess {
        start(&plan(&["/bin/sh", "-c", script]), OutputStream::Null).expect("/bin/sh starts")
    }

    /// Waits for the exit of `rank` without reaping it.
    fn wait(rank: &mut RankProcess) {
        until("its end", || rank.peek(std::time::SystemTime::UNIX_EPOCH));
    }

    #[test]
    fn only_the_rank_that_ended_is_named_and_only_once() {
        let mut ranks = [sh("sleep 100"), sh("exit 0"), sh("sleep 100")];
        let mut watch = ExitWatch::default();
        for (index, rank) in ranks.iter().enumerate() {
            watch.add(index, rank.pid());
        }
        wait(&mut ranks[1]);
        assert_eq!(watch.ended(), BTreeSet::from([1]));
        assert_eq!(watch.ended(), BTreeSet::new());
        for rank in ranks {
            rank.signal(libc::SIGKILL);
            rank.reap();
        }
    }

    #[test]
    fn a_rank_that_ended_before_it_was_watched_is_named() {
        let mut rank = sh("exit 0");
        wait(&mut rank);
        let mut watch = ExitWatch::default();
        watch.add(7, rank.pid());
        assert_eq!(watch.ended(), BTreeSet::from([7]));
        rank.reap();
    }

    #[test]
    fn more_ranks_than_one_system_call_reports_are_all_named() {
        let mut ranks: Vec<_> = (0..2 * AT_A_TIME + 1).map(|_| sh("exit 0")).collect();
        let mut watch = ExitWatch::default();
        for (index, rank) in ranks.iter_mut().enumerate() {
            wait(rank);
            watch.add(index, rank.pid());
        }
        assert_eq!(watch.ended(), (0..ranks.len()).collect());
        ranks.into_iter().for_each(RankProcess::reap);
    }

    #[test]
    fn a_rank_that_cannot_be_watched_is_asked_until_it_has_ended() {
        let mut watch = ExitWatch::default();
        // No process has this pid, so there is no pidfd for it.
        watch.add(3, Pid::from_raw(i32::MAX));
        assert_eq!(watch.ended(), BTreeSet::from([3]));
        assert_eq!(watch.ended(), BTreeSet::from([3]));
        watch.forget(3);
        assert_eq!(watch.ended(), BTreeSet::new());
    }
}
