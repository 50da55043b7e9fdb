//! The life of a model server: what an answer, an exit or a lapse of time means. Pure.
//!
//! ```text
//!                              ┌───────────────── the pause is over ──────────────────┐
//!        Begin                 ▼        answers                  exits                │
//! Idle ────────► Starting ◄────┴─────────────────────► Healthy ─────────► Pausing ────┘
//!                   │ exits, or is silent for too long              a restart is left ▲
//!                   │ (then it is ended first)                                        │
//!                   ├── it has worked before ─────────────────────────────────────────┘
//!                   └── it has not, or no restart is left ──► Over, and the launch fails
//! any state ──Stop──► Ending ──exits──► Over
//! ```
//! A command that has never worked is not tried again: it would fail in the same way, minutes later each time.

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::agent::group::UNINTERRUPTIBLE_GRACE;
use crate::agent::group::budget::{Budget, Restart};
use crate::process::exit::Exit;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The ranks are to be started as soon as the server works.
    Begin,
    /// It works.
    Answered,
    /// It has ended.
    Exited(Exit),
    /// It could not be started.
    NotStarted,
    /// The time that [`Machine::deadline`] named has come.
    Deadline,
    /// The launch is ending: from now on an end of the server is none to speak of.
    EndIsNear,
    /// It is not needed any more.
    Stop,
    /// It must be gone now.
    Kill,
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start it, and ask until it answers.
    Start,
    /// It works since now, so long after its start.
    Ready(Duration),
    /// Send this signal to its process group.
    Send(i32),
    /// Say that it has failed, and will be started again.
    Promise(Cause, Restart),
    /// Say that it has failed for good: the launch fails with it.
    GiveUp(Cause, Loss),
    /// Say that it does not end even by SIGKILL.
    Abandon,
}

/// What was wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It ended.
    Exited(Exit),
    /// It had not answered for so long, and was ended.
    Silent(Duration),
    /// The program could not be executed.
    NotStarted,
}

/// Why it is not started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has never worked.
    NeverWorked,
    /// It has had its restarts.
    Spent,
}

/// Who has started the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// This launcher.
    Host,
    /// Another launcher on this node: here it is only waited for.
    Guest,
}

/// Times and restarts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From a start until it must have answered.
    pub start_timeout: Duration,
    /// Restarts of a server that has worked.
    pub max_restarts: u32,
    /// From SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
}

/// The life of one server.
#[derive(Debug)]
pub struct Machine {
    role: Role,
    limits: Limits,
    budget: Budget,
    has_worked: bool,
    is_ending: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Starting { since: Instant, until: Instant },
    Healthy { since: Instant },
    Pausing { until: Instant },
    Ending { then: Then, patience: Patience },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Over,
    Retry(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    KillAt(Instant),
    GiveUpAt(Instant),
}

impl Machine {
    /// A server that has not been started.
    pub fn new(role: Role, limits: Limits) -> Machine {
        let budget = Budget::new(limits.max_restarts);
        Machine { role, limits, budget, has_worked: false, is_ending: false, state: State::Idle }
    }

    /// When [`Event::Deadline`] is wanted.
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Starting { until, .. } | State::Pausing { until } => Some(until),
            State::Ending { patience: Patience::KillAt(at) | Patience::GiveUpAt(at), .. } => Some(at),
            State::Idle | State::Healthy { .. } | State::Over => None,
        }
    }

    /// Since when it has been starting, while it is.
    pub fn starting(&self) -> Option<Instant> {
        match self.state {
            State::Starting { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Whether it works, as far as is known.
    pub fn is_healthy(&self) -> bool {
        matches!(self.state, State::Healthy { .. })
    }

    /// Whether nothing of it runs, or will.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Idle | State::Over)
    }

    /// Takes in what happened at `now` and says what to do.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match (self.state, event) {
            (State::Idle, Event::Begin) => self.start(now),
            (State::Starting { since, .. }, Event::Answered) => {
                self.has_worked = true;
                self.state = State::Healthy { since: now };
                vec![Action::Ready(now - since)]
            }
            (State::Starting { .. }, Event::NotStarted) => self.failed(Cause::NotStarted, Duration::ZERO, now),
            (State::Starting { .. }, Event::Exited(exit)) => self.failed(Cause::Exited(exit), Duration::ZERO, now),
            (State::Healthy { since }, Event::Exited(exit)) => self.failed(Cause::Exited(exit), now - since, now),
            (State::Starting { .. }, Event::Deadline) => self.silent(now),
            (State::Pausing { .. }, Event::Deadline) => self.start(now),
            (State::Ending { then, .. }, Event::Exited(_)) => self.ended(then, now),
            (State::Ending { then, patience: Patience::KillAt(_) }, Event::Deadline) => self.kill(then, now),
            (State::Ending { .. }, Event::Deadline) => {
                self.state = State::Over;
                vec![Action::Abandon]
            }
            (State::Pausing { .. }, Event::EndIsNear | Event::Stop | Event::Kill) | (State::Idle, Event::Stop) => {
                self.over()
            }
            (State::Starting { .. } | State::Healthy { .. }, Event::Stop | Event::Kill) if self.role == Role::Guest => {
                self.over()
            }
            (State::Starting { .. } | State::Healthy { .. }, Event::Stop) => self.end(Then::Over, now),
            (State::Ending { patience, .. }, Event::Stop) => {
                self.state = State::Ending { then: Then::Over, patience };
                Vec::new()
            }
            (State::Starting { .. } | State::Healthy { .. } | State::Ending { .. }, Event::Kill) => {
                self.kill(Then::Over, now)
            }
            (_, Event::EndIsNear) => {
                self.is_ending = true;
                Vec::new()
            }
            (
                State::Idle
                | State::Starting { .. }
                | State::Healthy { .. }
                | State::Pausing { .. }
                | State::Ending { .. }
                | State::Over,
                _,
            ) => Vec::new(),
        }
    }

    fn start(&mut self, now: Instant) -> Vec<Action> {
        self.state = State::Starting { since: now, until: now + self.limits.start_timeout };
        if self.role == Role::Host { vec![Action::Start] } else { Vec::new() }
    }

    fn silent(&mut self, now: Instant) -> Vec<Action> {
        let cause = Cause::Silent(self.limits.start_timeout);
        match self.role {
            Role::Host => self.end(Then::Retry(cause), now),
            Role::Guest => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn end(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Ending { then, patience: Patience::KillAt(now + self.limits.stop_timeout) };
        vec![Action::Send(libc::SIGTERM)]
    }

    fn kill(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Ending { then, patience: Patience::GiveUpAt(now + UNINTERRUPTIBLE_GRACE) };
        vec![Action::Send(libc::SIGKILL)]
    }

    fn ended(&mut self, then: Then, now: Instant) -> Vec<Action> {
        match then {
            Then::Over => self.over(),
            Then::Retry(cause) => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn failed(&mut self, cause: Cause, life: Duration, now: Instant) -> Vec<Action> {
        if self.is_ending {
            return self.over();
        }
        if !self.has_worked {
            self.state = State::Over;
            return vec![Action::GiveUp(cause, Loss::NeverWorked)];
        }
        let Some(restart) = self.budget.take(life) else {
            self.state = State::Over;
            return vec![Action::GiveUp(cause, Loss::Spent)];
        };
        self.state = State::Pausing { until: now + restart.after };
        vec![Action::Promise(cause, restart)]
    }

    fn over(&mut self) -> Vec<Action> {
        self.state = State::Over;
        Vec::new()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests need some `Instant` to count from")]
mod tests;
