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

use crate::agent::event::{Action, End, Event, LocalRank};
use crate::agent::group::isolation::Isolation;
use crate::process::exit::Exit;
use crate::supervision::{LEFTOVER_GRACE, Patience, UNINTERRUPTIBLE_GRACE};

/// The worker group of one node.
#[derive(Debug)]
pub struct Group {
    size: usize,
    grace: Duration,
    max_restarts: u32,
    attempt: u32,
    living: BTreeSet<LocalRank>,
    /// Number of listed signals received so far.
    signals: u32,
    state: State,
    /// Set if ranks fail independently; `None` if one failure stops all ranks.
    isolation: Option<Isolation>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining,
    Healthy,
    Stopping { then: Then, patience: Patience },
    Sweeping { then: Then, patience: Patience },
    Parting { end: End },
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Restart,
    /// Wait for the other nodes, then finish.
    Part(End),
    Finish(End),
}

impl Group {
    /// Returns a group of `size` ranks. `grace` is the time between SIGTERM and SIGKILL.
    pub fn new(size: usize, max_restarts: u32, grace: Duration) -> Group {
        let living = BTreeSet::new();
        Group {
            size,
            grace,
            max_restarts,
            attempt: 0,
            living,
            signals: 0,
            state: State::Joining,
            isolation: None,
        }
    }

    /// Lets ranks fail independently: `max_restarts` then applies to each rank, and a rank that
    /// exits with one of `final_codes` is not restarted.
    pub fn isolated(self, final_codes: Vec<i32>) -> Group {
        let isolation = Isolation::new(self.size, self.max_restarts, final_codes, self.grace);
        Group {
            isolation: Some(isolation),
            ..self
        }
    }

    /// Returns when the group needs an [`Event::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Stopping { patience, .. } | State::Sweeping { patience, .. } => {
                Some(patience.deadline())
            }
            State::Healthy => self.isolation.as_ref().and_then(Isolation::deadline),
            State::Joining | State::Parting { .. } | State::Finished => None,
        }
    }

    /// Returns the `TORCHELASTIC_RESTART_COUNT` of a rank when all ranks are started.
    pub fn attempt(&self, rank: LocalRank) -> u32 {
        self.isolation
            .as_ref()
            .map_or(self.attempt, |isolation| isolation.attempt(rank))
    }

    /// Returns whether the ranks are being stopped.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, State::Stopping { .. })
    }

    /// Returns whether the group waits for [`Event::Swept`].
    pub fn is_sweeping(&self) -> bool {
        matches!(self.state, State::Sweeping { .. })
    }

    /// Returns the ranks for which the group waits for [`Event::RankSwept`].
    pub fn sweeping(&self) -> BTreeSet<LocalRank> {
        let isolation = self
            .isolation
            .as_ref()
            .filter(|_| self.state == State::Healthy);
        isolation.map(Isolation::sweeping).unwrap_or_default()
    }

    /// Returns whether another rank of this node runs or will be restarted.
    pub fn has_others(&self, rank: LocalRank) -> bool {
        self.isolation
            .as_ref()
            .is_some_and(|isolation| isolation.has_others(rank))
    }

    /// Returns whether the ranks of this round have not been started yet.
    pub fn is_joining(&self) -> bool {
        self.state == State::Joining
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match (self.state, event) {
            (State::Joining, Event::Ready) => vec![Action::Join],
            (State::Joining, Event::Joined { attempt }) => self.spawn(attempt, now),
            (State::Joining, Event::Over(end)) => self.finish(end),
            (State::Joining | State::Parting { .. }, Event::Received(received)) => {
                self.finish(End::from(received))
            }
            (State::Healthy, Event::NotStarted(rank)) => self.not_started(rank, now),
            (State::Healthy, Event::Changed) => {
                self.stop(Then::Restart, libc::SIGTERM, self.grace, now)
            }
            (State::Healthy, Event::Over(end)) => {
                self.stop(Then::Finish(end), libc::SIGTERM, self.grace, now)
            }
            (State::Stopping { then, patience }, Event::Over(end)) => {
                self.state = State::Stopping {
                    then: without_restart(then, end),
                    patience,
                };
                Vec::new()
            }
            (State::Sweeping { then, patience }, Event::Over(end)) => {
                self.state = State::Sweeping {
                    then: without_restart(then, end),
                    patience,
                };
                Vec::new()
            }
            (State::Parting { .. }, Event::Changed) => self.join(),
            // As in torchrun, the fate of other nodes does not change the result of the ranks here.
            (State::Parting { end }, Event::Over(_)) => self.finish(end),
            (State::Healthy | State::Stopping { .. }, Event::Exited(rank, exit)) => {
                self.living.remove(&rank);
                self.exited(rank, exit, now)
            }
            (State::Healthy, Event::NotRestarted(rank)) => {
                self.isolate(now, |ranks| ranks.not_restarted(rank, now))
            }
            (State::Healthy, Event::RankSwept(rank)) => {
                self.isolate(now, |ranks| ranks.swept(rank, now))
            }
            (State::Healthy, Event::Deadline) => {
                self.isolate(now, |ranks| ranks.deadline_has_come(now))
            }
            (State::Healthy, Event::EndAnnounced) => self.isolate(now, Isolation::announce_end),
            (State::Healthy, Event::Received(received)) => self.stop_by(received, self.grace, now),
            (State::Healthy, Event::Interrupted { started, received }) => {
                self.living.split_off(&started);
                self.stop_by(received, self.grace, now)
            }
            (State::Stopping { .. }, Event::Received(received)) => self.hurry(received, now),
            (State::Stopping { then, patience }, Event::Deadline) => match patience {
                Patience::KillAt(_) => self.stop(then, libc::SIGKILL, self.grace, now),
                Patience::GiveUpAt(_) => self.abandon(then, now),
            },
            (State::Sweeping { then, patience }, Event::Deadline) => match patience {
                Patience::KillAt(_) => self.kill_leftovers(then, now),
                Patience::GiveUpAt(_) => self.swept(then),
            },
            (State::Sweeping { then, .. }, Event::Received(received)) => {
                self.kill_leftovers(without_restart(then, End::from(received)), now)
            }
            (State::Sweeping { then, .. }, Event::Swept) => self.swept(then),
            (_, Event::EndAnnounced) => {
                // Ranks that are stopping are not affected; ranks of a further round are not
                // restarted either.
                self.isolation.as_mut().map(Isolation::announce_end);
                Vec::new()
            }
            (
                State::Joining
                | State::Healthy
                | State::Stopping { .. }
                | State::Sweeping { .. }
                | State::Parting { .. }
                | State::Finished,
                _,
            ) => Vec::new(),
        }
    }

    fn join(&mut self) -> Vec<Action> {
        self.state = State::Joining;
        vec![Action::Join]
    }

    fn spawn(&mut self, attempt: u32, now: Instant) -> Vec<Action> {
        self.attempt = attempt;
        self.living = (0..self.size).map(LocalRank).collect();
        if let Some(isolation) = &mut self.isolation {
            isolation.begin(now);
        }
        self.state = State::Healthy;
        vec![Action::Spawn { attempt }]
    }

    fn finish(&mut self, end: End) -> Vec<Action> {
        self.state = State::Finished;
        vec![Action::Finish(end)]
    }

    fn not_started(&mut self, rank: LocalRank, now: Instant) -> Vec<Action> {
        self.living.split_off(&rank);
        let stop = self.stop(
            Then::Finish(End::NotStarted),
            libc::SIGTERM,
            self.grace,
            now,
        );
        [
            vec![Action::Tell {
                rank,
                restarts: false,
            }],
            stop,
        ]
        .concat()
    }

    /// Handles the end of a rank, which has been removed from `living`.
    fn exited(&mut self, rank: LocalRank, exit: Exit, now: Instant) -> Vec<Action> {
        match self.state {
            State::Stopping { then, .. } if self.living.is_empty() => self.sweep(then, true, now),
            State::Healthy if self.isolation.is_some() => {
                self.isolate(now, |ranks| ranks.exited(rank, exit, now))
            }
            State::Healthy if !exit.is_success() => self.failed(rank, now),
            State::Healthy if self.living.is_empty() => {
                self.sweep(Then::Part(End::Succeeded), false, now)
            }
            State::Joining
            | State::Healthy
            | State::Stopping { .. }
            | State::Sweeping { .. }
            | State::Parting { .. }
            | State::Finished => Vec::new(),
        }
    }

    /// Handles an event of a single rank; the round is over when its last rank is.
    fn isolate(
        &mut self,
        now: Instant,
        on: impl FnOnce(&mut Isolation) -> Vec<Action>,
    ) -> Vec<Action> {
        let Some(isolation) = &mut self.isolation else {
            return Vec::new();
        };
        let mut actions = on(isolation);
        self.living = isolation.running();
        if !isolation.is_over() {
            return actions;
        }
        let then = Then::Part(isolation.end());
        // All remaining leftovers are swept together.
        actions.retain(|action| !matches!(action, Action::SweepRank(_)));
        [actions, self.sweep(then, false, now)].concat()
    }

    fn failed(&mut self, rank: LocalRank, now: Instant) -> Vec<Action> {
        let restarts = self.attempt < self.max_restarts;
        let then = if restarts {
            Then::Restart
        } else {
            Then::Finish(End::Failed)
        };
        let stop = self.stop(then, libc::SIGTERM, self.grace, now);
        [vec![Action::Tell { rank, restarts }], stop].concat()
    }

    fn sweep(&mut self, then: Then, groups_know: bool, now: Instant) -> Vec<Action> {
        self.state = State::Sweeping {
            then,
            patience: Patience::KillAt(now + LEFTOVER_GRACE.min(self.grace)),
        };
        vec![Action::Sweep {
            groups_know,
            is_success: then == Then::Part(End::Succeeded),
        }]
    }

    fn kill_leftovers(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Sweeping {
            then,
            patience: Patience::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
        vec![Action::KillLeftovers]
    }

    fn swept(&mut self, then: Then) -> Vec<Action> {
        match then {
            Then::Restart => self.join(),
            Then::Part(end) => {
                self.state = State::Parting { end };
                vec![Action::Part]
            }
            Then::Finish(end) => self.finish(end),
        }
    }
}

/// Cancels a restart because the launch ends; otherwise keeps the end that was decided before.
fn without_restart(then: Then, end: End) -> Then {
    match then {
        Then::Restart => Then::Finish(end),
        Then::Part(_) | Then::Finish(_) => then,
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]
mod tests;
