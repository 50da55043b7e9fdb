//! Ranks that fail and restart independently of each other (`--failure-policy isolate`). Pure.
//!
//! ```text
//!           fails, a restart is left             swept, and the delay is over
//!  Running ─────────────────────────► Returning ──────────────────────────────► Running
//!     │  ╲                                 │
//!     │   ╲ fails, none is left            │ the end was announced
//!     │    ╲ exits with a final code       ▼
//!     │     ╲────────────────────────►   Lost        The round is over when no rank is
//!     ▼ exits with 0                                 running or returning.
//! Succeeded
//! ```
//! When a rank fails, its leftover processes get SIGTERM at once, before the restart delay. They
//! have at most [`LEFTOVER_GRACE`] to end, then get SIGKILL, and are given up after
//! [`UNINTERRUPTIBLE_GRACE`]. Leftovers of a rank that has succeeded may run until the round is
//! over.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::agent::event::{GroupAction, LaunchEnd, LossReason};
use crate::process::exit::Exit;
use crate::supervision::{
    LEFTOVER_GRACE, Restart, RestartBudget, StopDeadline, UNINTERRUPTIBLE_GRACE,
};

/// The ranks of one node, each with its own state.
#[derive(Debug)]
pub struct Isolation {
    ranks: Vec<IsolatedRank>,
    /// Exit codes after which a restart would not help.
    final_codes: Vec<i32>,
    /// How long leftovers may take to end after SIGTERM.
    grace: Duration,
    /// Whether the end of the launch was announced: no rank is restarted any more.
    ends: bool,
}

#[derive(Clone, Copy, Debug)]
struct IsolatedRank {
    budget: RestartBudget,
    fate: RankState,
    /// The deadline of its leftovers while they are being swept.
    sweep: Option<StopDeadline>,
}

#[derive(Clone, Copy, Debug)]
enum RankState {
    Running { since: Instant },
    Returning { due: Instant, attempt: u32 },
    Succeeded,
    Lost,
}

impl Isolation {
    /// Returns `size` ranks that may restart `max_restarts` times each, unless they exit with one
    /// of `final_codes`.
    pub fn new(
        size: usize,
        max_restarts: u32,
        final_codes: Vec<i32>,
        grace: Duration,
    ) -> Isolation {
        let member = IsolatedRank {
            budget: RestartBudget::new(max_restarts),
            fate: RankState::Succeeded,
            sweep: None,
        };
        Isolation {
            ranks: vec![member; size],
            final_codes,
            grace: grace.min(LEFTOVER_GRACE),
            ends: false,
        }
    }

    /// Begins a round: all ranks are started, including those that were lost in the round before.
    pub fn begin(&mut self, now: Instant) {
        for rank in &mut self.ranks {
            *rank = IsolatedRank {
                fate: RankState::Running { since: now },
                sweep: None,
                ..*rank
            };
        }
    }

    /// Returns the `TORCHELASTIC_RESTART_COUNT` of a rank.
    pub fn attempt(&self, rank: usize) -> u32 {
        self.ranks
            .get(rank)
            .map_or(0, |member| member.budget.restarts())
    }

    /// Returns the ranks that run.
    pub fn running(&self) -> BTreeSet<usize> {
        self.select(|member| matches!(member.fate, RankState::Running { .. }))
    }

    /// Returns the ranks whose leftovers have not all ended.
    pub fn sweeping(&self) -> BTreeSet<usize> {
        self.select(|member| member.sweep.is_some())
    }

    /// Returns whether no rank runs and none will be restarted.
    pub fn is_over(&self) -> bool {
        self.ranks.iter().all(IsolatedRank::is_over)
    }

    /// Returns whether another rank runs or will be restarted.
    pub fn has_others(&self, rank: usize) -> bool {
        self.ranks
            .iter()
            .enumerate()
            .any(|(index, member)| index != rank && !member.is_over())
    }

    /// Returns whether a rank has been given up.
    pub fn has_lost_ranks(&self) -> bool {
        let is_lost = |member: &IsolatedRank| matches!(member.fate, RankState::Lost);
        self.ranks.iter().any(is_lost)
    }

    /// Returns how the round ended; valid once it is over.
    pub fn end(&self) -> LaunchEnd {
        if self.has_lost_ranks() {
            LaunchEnd::Failed
        } else {
            LaunchEnd::Succeeded
        }
    }

    /// Returns when to call [`Isolation::deadline_has_come`].
    pub fn deadline(&self) -> Option<Instant> {
        self.ranks.iter().filter_map(IsolatedRank::deadline).min()
    }

    /// Handles the end of a rank that ran.
    pub fn exited(&mut self, rank: usize, exit: Exit, now: Instant) -> Vec<GroupAction> {
        if exit.is_success() {
            self.set(rank, RankState::Succeeded);
            return Vec::new();
        }
        let is_final = self
            .final_codes
            .iter()
            .any(|&code| exit == Exit::Code(code));
        let mut actions = if is_final {
            self.lose(rank, LossReason::Final)
        } else {
            self.failed(rank, now)
        };
        if let Some(member) = self.ranks.get_mut(rank) {
            member.sweep = Some(StopDeadline::KillAt(now + self.grace));
            actions.push(GroupAction::SweepRank(rank));
        }
        actions
    }

    /// Handles a rank that could not be restarted; it has left nothing behind.
    pub fn not_restarted(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        self.failed(rank, now)
    }

    /// Handles the end of the last leftover process of a rank.
    pub fn swept(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        let Some(member) = self.ranks.get_mut(rank) else {
            return Vec::new();
        };
        member.sweep = None;
        self.restart(rank, now).into_iter().collect()
    }

    /// Handles the deadline that [`Isolation::deadline`] returned, for one or more ranks.
    pub fn deadline_has_come(&mut self, now: Instant) -> Vec<GroupAction> {
        (0..self.ranks.len())
            .filter_map(|rank| {
                self.lose_patience(rank, now)
                    .or_else(|| self.restart(rank, now))
            })
            .collect()
    }

    /// Handles the announcement that the launch will end; ranks end by themselves when they have
    /// saved their work.
    pub fn announce_end(&mut self) -> Vec<GroupAction> {
        self.ends = true;
        let returning = self.select(|member| matches!(member.fate, RankState::Returning { .. }));
        returning
            .into_iter()
            .flat_map(|rank| self.lose(rank, LossReason::Ending))
            .collect()
    }

    fn failed(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        if self.ends {
            return self.lose(rank, LossReason::Ending);
        }
        let Some(member) = self.ranks.get_mut(rank) else {
            return Vec::new();
        };
        let life = match member.fate {
            RankState::Running { since } => now.saturating_duration_since(since),
            RankState::Returning { .. } | RankState::Succeeded | RankState::Lost => Duration::ZERO,
        };
        let Some(restart) = member.budget.take(life) else {
            return self.lose(rank, LossReason::Spent);
        };
        let Restart { after, attempt, .. } = restart;
        member.fate = RankState::Returning {
            due: now + after,
            attempt,
        };
        vec![GroupAction::Promise { rank, restart }]
    }

    fn lose(&mut self, rank: usize, why: LossReason) -> Vec<GroupAction> {
        self.set(rank, RankState::Lost);
        vec![GroupAction::Lose { rank, why }]
    }

    /// Restarts a rank if its delay is over and its leftovers have ended.
    fn restart(&mut self, rank: usize, now: Instant) -> Option<GroupAction> {
        let member = self
            .ranks
            .get_mut(rank)
            .filter(|member| member.sweep.is_none())?;
        let RankState::Returning { due, attempt } = member.fate else {
            return None;
        };
        (now >= due).then(|| {
            member.fate = RankState::Running { since: now };
            GroupAction::Restart { rank, attempt }
        })
    }

    /// Kills leftovers that did not end, and later stops waiting for them.
    fn lose_patience(&mut self, rank: usize, now: Instant) -> Option<GroupAction> {
        let member = self.ranks.get_mut(rank)?;
        match member.sweep {
            Some(StopDeadline::KillAt(at)) if now >= at => {
                member.sweep = Some(StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE));
                Some(GroupAction::KillLeftoversOf(rank))
            }
            Some(StopDeadline::GiveUpAt(at)) if now >= at => {
                member.sweep = None;
                None
            }
            Some(StopDeadline::KillAt(_) | StopDeadline::GiveUpAt(_)) | None => None,
        }
    }

    fn set(&mut self, rank: usize, fate: RankState) {
        if let Some(member) = self.ranks.get_mut(rank) {
            member.fate = fate;
        }
    }

    fn select(&self, is_meant: impl Fn(&IsolatedRank) -> bool) -> BTreeSet<usize> {
        let ranks = self
            .ranks
            .iter()
            .enumerate()
            .filter(|(_, member)| is_meant(member));
        ranks.map(|(index, _)| index).collect()
    }
}

impl IsolatedRank {
    fn is_over(&self) -> bool {
        matches!(self.fate, RankState::Succeeded | RankState::Lost)
    }

    fn deadline(&self) -> Option<Instant> {
        match (self.sweep, self.fate) {
            (Some(patience), _) => Some(patience.at()),
            (None, RankState::Returning { due, .. }) => Some(due),
            (None, RankState::Running { .. } | RankState::Succeeded | RankState::Lost) => None,
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]
mod tests;
