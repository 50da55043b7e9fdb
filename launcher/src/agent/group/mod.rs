//! The worker group of one node: tracks which ranks live, and decides what an exit or a signal
//! means for the others. Pure.
//!
//! ```text
//!           Joined          all exit 0                        Swept             Over
//! Joining ─────────► Healthy ──────────────────► Sweeping ──────────► Parting ──────────► Finished
//!    ▲                │                            ▲   │ │               │                  ▲
//!    │                ▼ one fails | signal |       │   │ └─launch over───────────────────────┘
//!    │               Stopping  other nodes         │   │                 │ Changed
//!    │                   └──all have ended─────────┘   │                 │
//!    └───────────────── another round is due ──────────┴─────────────────┘
//! ```
//! *Joining* and *Parting* wait for other nodes; on a single node they take no time.
//!
//! With `--failure-policy isolate`, the failure of a rank does not leave *Healthy*: see
//! [`isolation`].
//!
//! *Stopping* waits for the ranks: SIGTERM, then after the grace period SIGKILL to every process
//! group. *Sweeping* waits for their leftover processes: at most [`LEFTOVER_GRACE`], then SIGKILL.
//! After SIGKILL both wait [`UNINTERRUPTIBLE_GRACE`] and no longer.

pub mod isolation;
pub mod stopping;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::agent::event::{GroupAction, GroupEvent, LaunchEnd};
use crate::agent::group::isolation::Isolation;
use crate::process::exit::Exit;
use crate::supervision::{LEFTOVER_GRACE, StopDeadline, UNINTERRUPTIBLE_GRACE};

/// The worker group of one node.
#[derive(Debug)]
pub struct WorkerGroup {
    size: usize,
    grace: Duration,
    max_restarts: u32,
    attempt: u32,
    living: BTreeSet<usize>,
    /// Number of listed signals received so far.
    signals: u32,
    state: GroupState,
    /// Set if ranks fail independently; `None` if one failure stops all ranks.
    isolation: Option<Isolation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GroupState {
    Joining,
    Healthy,
    Stopping {
        then: AfterStop,
        patience: StopDeadline,
    },
    Sweeping {
        then: AfterStop,
        patience: StopDeadline,
    },
    Parting {
        end: LaunchEnd,
    },
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterStop {
    Restart,
    /// Wait for the other nodes, then finish.
    Part(LaunchEnd),
    Finish(LaunchEnd),
}

impl WorkerGroup {
    /// Returns a group of `size` ranks. `grace` is the time between SIGTERM and SIGKILL.
    pub fn new(size: usize, max_restarts: u32, grace: Duration) -> WorkerGroup {
        let living = BTreeSet::new();
        WorkerGroup {
            size,
            grace,
            max_restarts,
            attempt: 0,
            living,
            signals: 0,
            state: GroupState::Joining,
            isolation: None,
        }
    }

    /// Lets ranks fail independently: `max_restarts` then applies to each rank, and a rank that
    /// exits with one of `final_codes` is not restarted.
    pub fn isolated(self, final_codes: Vec<i32>) -> WorkerGroup {
        let isolation = Isolation::new(self.size, self.max_restarts, final_codes, self.grace);
        WorkerGroup {
            isolation: Some(isolation),
            ..self
        }
    }

    /// Returns when the group needs a [`GroupEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            GroupState::Stopping { patience, .. } | GroupState::Sweeping { patience, .. } => {
                Some(patience.at())
            }
            GroupState::Healthy => self.isolation.as_ref().and_then(Isolation::deadline),
            GroupState::Joining | GroupState::Parting { .. } | GroupState::Finished => None,
        }
    }

    /// Returns the `TORCHELASTIC_RESTART_COUNT` of a rank when all ranks are started.
    pub fn attempt(&self, rank: usize) -> u32 {
        self.isolation
            .as_ref()
            .map_or(self.attempt, |isolation| isolation.attempt(rank))
    }

    /// Returns whether the ranks are being stopped.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, GroupState::Stopping { .. })
    }

    /// Returns whether the group waits for [`GroupEvent::Swept`].
    pub fn is_sweeping(&self) -> bool {
        matches!(self.state, GroupState::Sweeping { .. })
    }

    /// Returns the ranks for which the group waits for [`GroupEvent::RankSwept`].
    pub fn sweeping(&self) -> BTreeSet<usize> {
        let isolation = self
            .isolation
            .as_ref()
            .filter(|_| self.state == GroupState::Healthy);
        isolation.map(Isolation::sweeping).unwrap_or_default()
    }

    /// Returns whether another rank of this node runs or will be restarted.
    pub fn has_others(&self, rank: usize) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(|isolation| isolation.has_others(rank))
    }

    /// Returns whether ranks of this node have been given up while the others continued.
    pub fn has_lost_ranks(&self) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(Isolation::has_lost_ranks)
    }

    /// Returns whether the ranks of this round have not been started yet.
    pub fn is_joining(&self) -> bool {
        self.state == GroupState::Joining
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: GroupEvent, now: Instant) -> Vec<GroupAction> {
        match (self.state, event) {
            (GroupState::Joining, GroupEvent::Ready) => vec![GroupAction::Join],
            (GroupState::Joining, GroupEvent::Joined { attempt }) => self.spawn(attempt, now),
            (GroupState::Joining, GroupEvent::Over(end)) => self.finish(end),
            (GroupState::Joining | GroupState::Parting { .. }, GroupEvent::Received(received)) => {
                self.finish(LaunchEnd::from(received))
            }
            (GroupState::Healthy, GroupEvent::NotStarted(rank)) => self.not_started(rank, now),
            (GroupState::Healthy, GroupEvent::Changed) => {
                self.stop(AfterStop::Restart, libc::SIGTERM, self.grace, now)
            }
            (GroupState::Healthy, GroupEvent::Over(end)) => {
                self.stop(AfterStop::Finish(end), libc::SIGTERM, self.grace, now)
            }
            (GroupState::Stopping { then, patience }, GroupEvent::Over(end)) => {
                self.state = GroupState::Stopping {
                    then: without_restart(then, end),
                    patience,
                };
                Vec::new()
            }
            (GroupState::Sweeping { then, patience }, GroupEvent::Over(end)) => {
                self.state = GroupState::Sweeping {
                    then: without_restart(then, end),
                    patience,
                };
                Vec::new()
            }
            (GroupState::Parting { .. }, GroupEvent::Changed) => self.join(),
            // As in torchrun, the fate of other nodes does not change the result of the ranks here.
            (GroupState::Parting { end }, GroupEvent::Over(_)) => self.finish(end),
            (GroupState::Healthy | GroupState::Stopping { .. }, GroupEvent::Exited(rank, exit)) => {
                self.living.remove(&rank);
                self.exited(rank, exit, now)
            }
            (GroupState::Healthy, GroupEvent::NotRestarted(rank)) => {
                self.isolate(now, |ranks| ranks.not_restarted(rank, now))
            }
            (GroupState::Healthy, GroupEvent::RankSwept(rank)) => {
                self.isolate(now, |ranks| ranks.swept(rank, now))
            }
            (GroupState::Healthy, GroupEvent::Deadline) => {
                self.isolate(now, |ranks| ranks.deadline_has_come(now))
            }
            (GroupState::Healthy, GroupEvent::EndAnnounced) => {
                self.isolate(now, Isolation::announce_end)
            }
            (GroupState::Healthy, GroupEvent::Received(received)) => {
                self.stop_by(received, self.grace, now)
            }
            (GroupState::Healthy, GroupEvent::Interrupted { started, received }) => {
                self.living.split_off(&started);
                self.stop_by(received, self.grace, now)
            }
            (GroupState::Stopping { .. }, GroupEvent::Received(received)) => {
                self.hurry(received, now)
            }
            (GroupState::Stopping { then, patience }, GroupEvent::Deadline) => match patience {
                StopDeadline::KillAt(_) => self.stop(then, libc::SIGKILL, self.grace, now),
                StopDeadline::GiveUpAt(_) => self.abandon(then, now),
            },
            (GroupState::Sweeping { then, patience }, GroupEvent::Deadline) => match patience {
                StopDeadline::KillAt(_) => self.kill_leftovers(then, now),
                StopDeadline::GiveUpAt(_) => self.swept(then),
            },
            (GroupState::Sweeping { then, .. }, GroupEvent::Received(received)) => {
                self.kill_leftovers(without_restart(then, LaunchEnd::from(received)), now)
            }
            (GroupState::Sweeping { then, .. }, GroupEvent::Swept) => self.swept(then),
            (_, GroupEvent::EndAnnounced) => {
                // Ranks that are stopping are not affected; ranks of a further round are not
                // restarted either.
                self.isolation.as_mut().map(Isolation::announce_end);
                Vec::new()
            }
            (
                GroupState::Joining
                | GroupState::Healthy
                | GroupState::Stopping { .. }
                | GroupState::Sweeping { .. }
                | GroupState::Parting { .. }
                | GroupState::Finished,
                _,
            ) => Vec::new(),
        }
    }

    fn join(&mut self) -> Vec<GroupAction> {
        self.state = GroupState::Joining;
        vec![GroupAction::Join]
    }

    fn spawn(&mut self, attempt: u32, now: Instant) -> Vec<GroupAction> {
        self.attempt = attempt;
        self.living = (0..self.size).collect();
        if let Some(isolation) = &mut self.isolation {
            isolation.begin(now);
        }
        self.state = GroupState::Healthy;
        vec![GroupAction::Spawn { attempt }]
    }

    fn finish(&mut self, end: LaunchEnd) -> Vec<GroupAction> {
        self.state = GroupState::Finished;
        vec![GroupAction::Finish(end)]
    }

    fn not_started(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        self.living.split_off(&rank);
        let stop = self.stop(
            AfterStop::Finish(LaunchEnd::NotStarted),
            libc::SIGTERM,
            self.grace,
            now,
        );
        [
            vec![GroupAction::Tell {
                rank,
                restarts: false,
            }],
            stop,
        ]
        .concat()
    }

    /// Handles the end of a rank, which has been removed from `living`.
    fn exited(&mut self, rank: usize, exit: Exit, now: Instant) -> Vec<GroupAction> {
        match self.state {
            GroupState::Stopping { then, .. } if self.living.is_empty() => {
                self.sweep(then, true, now)
            }
            GroupState::Healthy if self.isolation.is_some() => {
                self.isolate(now, |ranks| ranks.exited(rank, exit, now))
            }
            GroupState::Healthy if !exit.is_success() => self.failed(rank, now),
            GroupState::Healthy if self.living.is_empty() => {
                self.sweep(AfterStop::Part(LaunchEnd::Succeeded), false, now)
            }
            GroupState::Joining
            | GroupState::Healthy
            | GroupState::Stopping { .. }
            | GroupState::Sweeping { .. }
            | GroupState::Parting { .. }
            | GroupState::Finished => Vec::new(),
        }
    }

    /// Handles an event of a single rank; the round is over when its last rank is.
    fn isolate(
        &mut self,
        now: Instant,
        on: impl FnOnce(&mut Isolation) -> Vec<GroupAction>,
    ) -> Vec<GroupAction> {
        let Some(isolation) = &mut self.isolation else {
            return Vec::new();
        };
        let mut actions = on(isolation);
        self.living = isolation.running();
        if !isolation.is_over() {
            return actions;
        }
        let then = AfterStop::Part(isolation.end());
        // All remaining leftovers are swept together.
        actions.retain(|action| !matches!(action, GroupAction::SweepRank(_)));
        [actions, self.sweep(then, false, now)].concat()
    }

    fn failed(&mut self, rank: usize, now: Instant) -> Vec<GroupAction> {
        let restarts = self.attempt < self.max_restarts;
        let then = if restarts {
            AfterStop::Restart
        } else {
            AfterStop::Finish(LaunchEnd::Failed)
        };
        let stop = self.stop(then, libc::SIGTERM, self.grace, now);
        [vec![GroupAction::Tell { rank, restarts }], stop].concat()
    }

    fn sweep(&mut self, then: AfterStop, groups_know: bool, now: Instant) -> Vec<GroupAction> {
        self.state = GroupState::Sweeping {
            then,
            patience: StopDeadline::KillAt(now + LEFTOVER_GRACE.min(self.grace)),
        };
        vec![GroupAction::Sweep {
            groups_know,
            is_success: then == AfterStop::Part(LaunchEnd::Succeeded),
        }]
    }

    fn kill_leftovers(&mut self, then: AfterStop, now: Instant) -> Vec<GroupAction> {
        self.state = GroupState::Sweeping {
            then,
            patience: StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
        vec![GroupAction::KillLeftovers]
    }

    fn swept(&mut self, then: AfterStop) -> Vec<GroupAction> {
        match then {
            AfterStop::Restart => self.join(),
            AfterStop::Part(end) => {
                self.state = GroupState::Parting { end };
                vec![GroupAction::Part]
            }
            AfterStop::Finish(end) => self.finish(end),
        }
    }
}

/// Cancels a restart because the launch ends; otherwise keeps the end that was decided before.
fn without_restart(then: AfterStop, end: LaunchEnd) -> AfterStop {
    match then {
        AfterStop::Restart => AfterStop::Finish(end),
        AfterStop::Part(_) | AfterStop::Finish(_) => then,
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]
mod tests;
