//! Handles a rank that fails on its own (`--failure-policy isolate`): reports it, ends its
//! leftovers, and restarts it or gives it up.

use nix::sys::signal::Signal;

use crate::agent::driver::LaunchDriver;
use crate::agent::event::{GroupEvent, LossReason};
use crate::events::{self, Happening};
use crate::failure::Casualty;
use crate::logs::attempt::LoggedRank;
use crate::process::exit::Exit;
use crate::process::leftover::Trace;
use crate::say::{self, Level};
use crate::supervision::Restart;

impl LaunchDriver<'_> {
    /// Reports that a rank will be restarted.
    pub(super) fn promise(&self, rank: usize, restart: Restart) {
        let Some(casualty) = self.attempt.casualty(rank) else {
            return;
        };
        let Restart {
            number, of, after, ..
        } = restart;
        let (failure, others) = (self.failure(casualty), self.others(rank));
        let line = format!(
            "{failure}; restart {number} of {of} in {} s{others}",
            after.as_secs()
        );
        say::of_rank(Level::Warning, casualty.rank, Some(casualty.pid), line);
        events::record(
            &self.round(),
            &Happening::Restart {
                who: casualty.into(),
                restart,
            },
        );
    }

    /// Reports to the user, and to the other ranks, that a rank has died for good.
    pub(super) fn lose(&self, rank: usize, why: LossReason) {
        let Some(casualty) = self.attempt.casualty(rank) else {
            return;
        };
        let why = match why {
            LossReason::Spent => "no restart is left",
            LossReason::Final => "a restart would not change that",
            LossReason::Ending => "the end of the launch was announced",
        };
        let reason = format!("{}; {why}", self.failure(casualty));
        say::of_rank(
            Level::Error,
            casualty.rank,
            Some(casualty.pid),
            format_args!("{reason}{}", self.others(rank)),
        );
        events::record(
            &self.round(),
            &Happening::Lost {
                who: casualty.into(),
                reason: &reason,
            },
        );
        self.peers.lost(&self.place, casualty.rank.global, &reason);
    }

    /// Restarts a rank.
    pub(super) fn restart(&mut self, rank: usize, attempt: u32) -> Result<(), usize> {
        let round = self.round();
        let writer = LoggedRank {
            rank: round.rank(rank),
            attempt,
        };
        let logs = self.logs(&[writer]).map_err(|()| rank)?;
        if let Some(tail) = self.attempt.restart(&round, rank, attempt, logs)? {
            self.flushes.push(Box::pin(tail.finish()));
        }
        Ok(())
    }

    /// Sends `signal` to the leftovers of a rank that has ended. Returns [`GroupEvent::RankSwept`]
    /// if none of them is alive.
    pub(super) fn sweep_rank(&self, rank: usize, signal: Option<Signal>) -> Option<GroupEvent> {
        (self.leftovers_of(rank, signal) == 0).then_some(GroupEvent::RankSwept(rank))
    }

    /// Kills the leftovers of a rank that did not end after SIGTERM.
    pub(super) fn kill_leftovers_of(&self, rank: usize) {
        let living = self.leftovers_of(rank, Some(Signal::SIGKILL));
        let global = self.round().rank(rank).global;
        say::warning(format_args!(
            "killed processes that rank {global} had left behind: {living}"
        ));
    }

    fn leftovers_of(&self, rank: usize, signal: Option<Signal>) -> usize {
        let Some(pid) = self.attempt.pid(rank) else {
            return 0;
        };
        let mark = self.round().mark(rank);
        self.leftovers
            .signal_of(self.attempt.pids(), Trace { pid, mark: &mark }, signal)
    }

    /// Describes the end of a rank, with a hint at its likely cause.
    pub(super) fn failure(&self, casualty: &Casualty) -> String {
        let hint = match (&casualty.hang, casualty.exit) {
            (Some(_), _) => "",
            (None, Exit::Signal(libc::SIGKILL)) => casualty.lack_of_memory(),
            (None, exit) => exit.meaning(),
        };
        format!("rank {} {}{hint}", casualty.rank.global, casualty.ending())
    }

    fn others(&self, rank: usize) -> &'static str {
        let has_others = self.place.nodes > 1 || self.group.has_others(rank);
        if has_others {
            ", the other ranks continue"
        } else {
            ""
        }
    }
}
