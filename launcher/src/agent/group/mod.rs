//! The worker group of one node: which ranks live, and what an exit or a signal means for the others. Pure.
//!
//! ```text
//!            Joined          all exit 0                        Swept             Over
//! Joining ──────────► Healthy ──────────────────► Sweeping ──────────► Parting ──────────► Finished
//!    ▲                 │                            ▲   │ │               │                  ▲
//!    │                 ▼ one fails | signal |       │   │ └─nothing follows─────────────────┘
//!    │                Stopping  other nodes         │   │                 │ Changed
//!    │                    └──none lives─────────────┘   │                 │
//!    └───────────────── another round is due ───────────┴─────────────────┘
//! ```
//! *Joining* and *Parting* wait for other nodes; alone they take no time.
//!
//! *Stopping* waits for the ranks: the grace, then SIGKILL to every group. *Sweeping* waits for what they left behind:
//! [`LEFTOVER_GRACE`] at most, then SIGKILL. After SIGKILL both wait [`UNINTERRUPTIBLE_GRACE`] and no longer.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use crate::agent::event::{Action, End, Event, LocalRank};
use crate::signals::Received;

/// How long processes that outlive their rank may take to end after SIGTERM. Torchrun leaves them alone; five seconds
/// let a data loader or a logger close its files and keep the end of a launch short.
pub const LEFTOVER_GRACE: Duration = Duration::from_secs(5);

/// How long to wait after SIGKILL for a process that sits in an uninterruptible system call, a hung GPU driver or file
/// server for instance (pytorch/pytorch#185414: torchrun waits without limit).
pub const UNINTERRUPTIBLE_GRACE: Duration = Duration::from_secs(30);

/// What is left of the grace after a second signal: it is forwarded, as torchrun does, but its sender is in a hurry.
pub const LAST_GRACE: Duration = Duration::from_secs(2);

/// The worker group.
#[derive(Debug)]
pub struct Group {
    size: usize,
    grace: Duration,
    max_restarts: u32,
    attempt: u32,
    living: BTreeSet<LocalRank>,
    /// Listed signals received so far.
    signals: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Joining,
    Healthy,
    Stopping { then: Then, patience: Patience },
    Sweeping { then: Then, patience: Patience },
    Parting,
    Finished,
}

/// What is waited for until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    KillAt(Instant),
    GiveUpAt(Instant),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Restart,
    Finish(End),
}

impl Group {
    /// A group of `size` ranks; `grace` lies between SIGTERM and SIGKILL.
    pub fn new(size: usize, max_restarts: u32, grace: Duration) -> Group {
        let living = BTreeSet::new();
        Group { size, grace, max_restarts, attempt: 0, living, signals: 0, state: State::Joining }
    }

    /// When [`Event::Deadline`] is wanted.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Stopping { patience, .. } | State::Sweeping { patience, .. } => match patience {
                Patience::KillAt(at) | Patience::GiveUpAt(at) => Some(at),
            },
            State::Joining | State::Healthy | State::Parting | State::Finished => None,
        }
    }

    /// Whether ranks that end now were told to.
    pub fn is_stopping(&self) -> bool {
        matches!(self.state, State::Stopping { .. })
    }

    /// Whether [`Event::Swept`] is waited for.
    pub fn is_sweeping(&self) -> bool {
        matches!(self.state, State::Sweeping { .. })
    }

    /// Whether the ranks have not been started yet in this round.
    pub fn is_joining(&self) -> bool {
        self.state == State::Joining
    }

    /// Takes in what happened at `now` and says what to do.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match (self.state, event) {
            (State::Joining, Event::Ready) => vec![Action::Join],
            (State::Joining, Event::Joined { attempt }) => self.spawn(attempt),
            (State::Joining, Event::Over(end)) => self.finish(end),
            (State::Joining | State::Parting, Event::Received(received)) => self.finish(end_by(received)),
            (State::Healthy, Event::NotStarted(rank)) => self.not_started(rank, now),
            (State::Healthy, Event::Changed) => self.stop(Then::Restart, libc::SIGTERM, self.grace, now),
            (State::Healthy, Event::Over(end)) => self.stop(Then::Finish(end), libc::SIGTERM, self.grace, now),
            (State::Stopping { then, patience }, Event::Over(end)) => {
                self.state = State::Stopping { then: without_restart(then, end), patience };
                Vec::new()
            }
            (State::Sweeping { then, patience }, Event::Over(end)) => {
                self.state = State::Sweeping { then: without_restart(then, end), patience };
                Vec::new()
            }
            (State::Parting, Event::Changed) => self.join(),
            // As in torchrun, what becomes of other nodes does not change that all ranks here have succeeded.
            (State::Parting, Event::Over(_)) => self.finish(End::Succeeded),
            (State::Healthy | State::Stopping { .. }, Event::Exited(rank, exit)) => {
                self.living.remove(&rank);
                self.exited(rank, exit.is_success(), now)
            }
            (State::Healthy, Event::Received(received)) => self.stop_by(received, self.grace, now),
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
                self.kill_leftovers(without_restart(then, end_by(received)), now)
            }
            (State::Sweeping { then, .. }, Event::Swept) => self.swept(then),
            (
                State::Joining
                | State::Healthy
                | State::Stopping { .. }
                | State::Sweeping { .. }
                | State::Parting
                | State::Finished,
                _,
            ) => Vec::new(),
        }
    }

    fn join(&mut self) -> Vec<Action> {
        self.state = State::Joining;
        vec![Action::Join]
    }

    fn spawn(&mut self, attempt: u32) -> Vec<Action> {
        self.attempt = attempt;
        self.living = (0..self.size).map(LocalRank).collect();
        self.state = State::Healthy;
        vec![Action::Spawn { attempt }]
    }

    fn finish(&mut self, end: End) -> Vec<Action> {
        self.state = State::Finished;
        vec![Action::Finish(end)]
    }

    fn not_started(&mut self, rank: LocalRank, now: Instant) -> Vec<Action> {
        self.living.split_off(&rank);
        let stop = self.stop(Then::Finish(End::NotStarted), libc::SIGTERM, self.grace, now);
        [vec![Action::Tell { rank, restarts: false }], stop].concat()
    }

    /// A rank has left `living`.
    fn exited(&mut self, rank: LocalRank, is_success: bool, now: Instant) -> Vec<Action> {
        match self.state {
            State::Stopping { then, .. } if self.living.is_empty() => self.sweep(then, true, now),
            State::Healthy if !is_success => self.failed(rank, now),
            State::Healthy if self.living.is_empty() => self.sweep(Then::Finish(End::Succeeded), false, now),
            State::Joining
            | State::Healthy
            | State::Stopping { .. }
            | State::Sweeping { .. }
            | State::Parting
            | State::Finished => Vec::new(),
        }
    }

    fn failed(&mut self, rank: LocalRank, now: Instant) -> Vec<Action> {
        let restarts = self.attempt < self.max_restarts;
        let then = if restarts { Then::Restart } else { Then::Finish(End::Failed) };
        let stop = self.stop(then, libc::SIGTERM, self.grace, now);
        [vec![Action::Tell { rank, restarts }], stop].concat()
    }

    fn stop_by(&mut self, received: Received, grace: Duration, now: Instant) -> Vec<Action> {
        let then = Then::Finish(end_by(received));
        if !received.is_listed {
            return self.stop(then, libc::SIGKILL, grace, now);
        }
        self.signals += 1;
        self.stop(then, received.number, grace, now)
    }

    /// A signal while the ranks are ending. The first one during a stop of our own is forwarded; the second one of all
    /// is too, with little grace left; a second Ctrl-C, and any third, kills at once.
    fn hurry(&mut self, received: Received, now: Instant) -> Vec<Action> {
        let kills = self.signals > 0 && (received.number == libc::SIGINT || self.signals > 1);
        if kills {
            return self.stop(Then::Finish(end_by(received)), libc::SIGKILL, Duration::ZERO, now);
        }
        let left = self.deadline().map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let grace = if self.signals > 0 { left.min(LAST_GRACE) } else { left };
        self.stop_by(received, grace, now)
    }

    fn stop(&mut self, then: Then, signal: i32, grace: Duration, now: Instant) -> Vec<Action> {
        let send = Action::Send { signal };
        if self.living.is_empty() {
            return [vec![send], self.sweep(then, true, now)].concat();
        }
        let patience = match signal {
            libc::SIGKILL => Patience::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
            _ => Patience::KillAt(now + grace),
        };
        self.state = State::Stopping { then, patience };
        vec![send]
    }

    fn sweep(&mut self, then: Then, groups_know: bool, now: Instant) -> Vec<Action> {
        self.state = State::Sweeping { then, patience: Patience::KillAt(now + LEFTOVER_GRACE.min(self.grace)) };
        vec![Action::Sweep { groups_know }]
    }

    fn kill_leftovers(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Sweeping { then, patience: Patience::GiveUpAt(now + UNINTERRUPTIBLE_GRACE) };
        vec![Action::KillLeftovers]
    }

    fn swept(&mut self, then: Then) -> Vec<Action> {
        match then {
            Then::Restart => self.join(),
            Then::Finish(End::Succeeded) => {
                self.state = State::Parting;
                vec![Action::Part]
            }
            Then::Finish(end) => self.finish(end),
        }
    }

    /// Ranks that SIGKILL cannot end still hold their devices, so a restart would meet them there.
    fn abandon(&mut self, then: Then, now: Instant) -> Vec<Action> {
        let abandoned: Vec<Action> = std::mem::take(&mut self.living).into_iter().map(Action::Abandon).collect();
        let then = if then == Then::Restart { Then::Finish(End::Failed) } else { then };
        [abandoned, self.sweep(then, true, now)].concat()
    }
}

fn end_by(received: Received) -> End {
    match received {
        Received { number: signal, is_listed: true } => End::Stopped { signal },
        Received { number: signal, is_listed: false } => End::Killed { signal },
    }
}

/// What ends the launch cancels a restart, but does not change how it was to end anyway.
fn without_restart(then: Then, end: End) -> Then {
    match then {
        Then::Restart => Then::Finish(end),
        Then::Finish(end) => Then::Finish(end),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need some `Instant` to count from")]
mod tests;
