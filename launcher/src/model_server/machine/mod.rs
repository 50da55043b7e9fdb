//! The state machine of a model server: decides what an answer, an exit or a timeout means. Pure.
//!
//! ```text
//!                              ┌───────────────── the delay is over ──────────────────┐
//!        Begin                 ▼        answers                  exits                │
//! Idle ────────► Starting ◄────┴─────────────────────► Healthy ─────────► Pausing ────┘
//!                   │ exits, or does not answer in time             a restart is left ▲
//!                   │ (then it is stopped first)                                      │
//!                   ├── it has been healthy before ───────────────────────────────────┘
//!                   └── never healthy, or no restart left ──► Over, and the launch fails
//! any state ──Stop──► Ending ──exits──► Over
//! ```
//! A command that has never become healthy is not tried again: it would fail in the same way,
//! minutes later each time.

use std::time::{Duration, Instant};

use crate::plan::model_server::Role;
use crate::process::exit::Exit;
use crate::supervision::{Patience, Restart, RestartBudget, UNINTERRUPTIBLE_GRACE};

/// An event in the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server is needed: ranks start when it is healthy.
    Begin,
    /// The server has answered a probe, so it is healthy.
    Answered,
    /// The server has exited.
    Exited(Exit),
    /// The server could not be started.
    NotStarted,
    /// The time returned by [`Machine::deadline`] has come.
    Deadline,
    /// The launch is ending: from now on an exit of the server is not reported.
    EndIsNear,
    /// The server is not needed any more.
    Stop,
    /// The server must end at once.
    Kill,
}

/// Something for the caller to do. Actions are executed in the order given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the server, and probe it until it answers.
    Start,
    /// Report that the server is healthy, this long after its start.
    Ready(Duration),
    /// Send this signal to its process group.
    Send(i32),
    /// Report that the server has failed and will be restarted.
    Promise(Cause, Restart),
    /// Report that the server has failed for good: the launch fails with it.
    GiveUp(Cause, Loss),
    /// Report that the server does not end even after SIGKILL.
    Abandon,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The server exited.
    Exited(Exit),
    /// The server had not answered for this long, and was stopped.
    Silent(Duration),
    /// The program could not be executed.
    NotStarted,
}

/// The reason why the server is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It has never been healthy.
    NeverWorked,
    /// It has used up its restarts.
    Spent,
}

/// Timeouts and restarts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Time from a start to the first answer.
    pub start_timeout: Duration,
    /// Number of restarts of a server that has been healthy.
    pub max_restarts: u32,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
}

/// The state of one server.
#[derive(Debug)]
pub struct Machine {
    role: Role,
    limits: Limits,
    budget: RestartBudget,
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

impl Machine {
    /// Returns the state of a server that has not been started.
    pub fn new(role: Role, limits: Limits) -> Machine {
        let budget = RestartBudget::new(limits.max_restarts);
        Machine {
            role,
            limits,
            budget,
            has_worked: false,
            is_ending: false,
            state: State::Idle,
        }
    }

    /// Returns when the machine needs an [`Event::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Starting { until, .. } | State::Pausing { until } => Some(until),
            State::Ending { patience, .. } => Some(patience.deadline()),
            State::Idle | State::Healthy { .. } | State::Over => None,
        }
    }

    /// Returns when the current start began, if the server is starting.
    pub fn starting(&self) -> Option<Instant> {
        match self.state {
            State::Starting { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Returns whether the server is healthy, as far as is known.
    pub fn is_healthy(&self) -> bool {
        matches!(self.state, State::Healthy { .. })
    }

    /// Returns whether the server does not run and will not be started.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Idle | State::Over)
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: Event, now: Instant) -> Vec<Action> {
        match (self.state, event) {
            (State::Idle, Event::Begin) => self.start(now),
            (State::Starting { since, .. }, Event::Answered) => {
                self.has_worked = true;
                self.state = State::Healthy { since: now };
                vec![Action::Ready(now - since)]
            }
            (State::Starting { .. }, Event::NotStarted) => {
                self.failed(Cause::NotStarted, Duration::ZERO, now)
            }
            (State::Starting { .. }, Event::Exited(exit)) => {
                self.failed(Cause::Exited(exit), Duration::ZERO, now)
            }
            (State::Healthy { since }, Event::Exited(exit)) => {
                self.failed(Cause::Exited(exit), now - since, now)
            }
            (State::Starting { .. }, Event::Deadline) => self.silent(now),
            (State::Pausing { .. }, Event::Deadline) => self.start(now),
            (State::Ending { then, .. }, Event::Exited(_)) => self.ended(then, now),
            (
                State::Ending {
                    then,
                    patience: Patience::KillAt(_),
                },
                Event::Deadline,
            ) => self.kill(then, now),
            (State::Ending { .. }, Event::Deadline) => {
                self.state = State::Over;
                vec![Action::Abandon]
            }
            (State::Pausing { .. }, Event::EndIsNear | Event::Stop | Event::Kill)
            | (State::Idle, Event::Stop) => self.over(),
            (State::Starting { .. } | State::Healthy { .. }, Event::Stop | Event::Kill)
                if self.role == Role::Guest =>
            {
                self.over()
            }
            (State::Starting { .. } | State::Healthy { .. }, Event::Stop) => {
                self.end(Then::Over, now)
            }
            (State::Ending { patience, .. }, Event::Stop) => {
                self.state = State::Ending {
                    then: Then::Over,
                    patience,
                };
                Vec::new()
            }
            (
                State::Starting { .. } | State::Healthy { .. } | State::Ending { .. },
                Event::Kill,
            ) => self.kill(Then::Over, now),
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
        self.state = State::Starting {
            since: now,
            until: now + self.limits.start_timeout,
        };
        if self.role == Role::Host {
            vec![Action::Start]
        } else {
            Vec::new()
        }
    }

    fn silent(&mut self, now: Instant) -> Vec<Action> {
        let cause = Cause::Silent(self.limits.start_timeout);
        match self.role {
            Role::Host => self.end(Then::Retry(cause), now),
            Role::Guest => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn end(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Ending {
            then,
            patience: Patience::KillAt(now + self.limits.stop_timeout),
        };
        vec![Action::Send(libc::SIGTERM)]
    }

    fn kill(&mut self, then: Then, now: Instant) -> Vec<Action> {
        self.state = State::Ending {
            then,
            patience: Patience::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
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
        self.state = State::Pausing {
            until: now + restart.after,
        };
        vec![Action::Promise(cause, restart)]
    }

    fn over(&mut self) -> Vec<Action> {
        self.state = State::Over;
        Vec::new()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]
mod tests;
