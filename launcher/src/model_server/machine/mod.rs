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

use crate::plan::ServerRole;
use crate::process::exit::Exit;
use crate::supervision::{Restart, RestartBudget, StopDeadline, UNINTERRUPTIBLE_GRACE};

/// An event in the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The server is needed: ranks start when it is healthy.
    Begin,
    /// The server has answered a probe, so it is healthy.
    Answered,
    /// The server has exited.
    Exited(Exit),
    /// The server could not be started.
    NotStarted,
    /// The time returned by [`ServerMachine::deadline`] has come.
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
pub enum ServerAction {
    /// Start the server, and probe it until it answers.
    Start,
    /// Report that the server is healthy, this long after its start.
    Ready(Duration),
    /// Send this signal to its process group.
    Send(i32),
    /// Report that the server has failed and will be restarted.
    Promise(ServerFailure, Restart),
    /// Report that the server has failed for good: the launch fails with it.
    GiveUp(ServerFailure, GiveUpReason),
    /// Report that the server does not end even after SIGKILL.
    Abandon,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFailure {
    /// The server exited.
    Exited(Exit),
    /// The server had not answered for this long, and was stopped.
    Silent(Duration),
    /// The program could not be executed.
    NotStarted,
}

/// The reason why the server is not restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GiveUpReason {
    /// It has never been healthy.
    NeverWorked,
    /// It has used up its restarts.
    Spent,
}

/// Timeouts and restarts of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Time from a start to the first answer.
    pub start_timeout: Duration,
    /// Number of restarts of a server that has been healthy.
    pub max_restarts: u32,
    /// Time between SIGTERM and SIGKILL.
    pub stop_timeout: Duration,
}

/// The state of one server.
#[derive(Debug)]
pub struct ServerMachine {
    role: ServerRole,
    limits: ServerLimits,
    budget: RestartBudget,
    has_worked: bool,
    is_ending: bool,
    state: ModelServerState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelServerState {
    Idle,
    Starting {
        since: Instant,
        until: Instant,
    },
    Healthy {
        since: Instant,
    },
    Pausing {
        until: Instant,
    },
    Ending {
        then: AfterEnd,
        patience: StopDeadline,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterEnd {
    Over,
    Retry(ServerFailure),
}

impl ServerMachine {
    /// Returns the state of a server that has not been started.
    pub fn new(role: ServerRole, limits: ServerLimits) -> ServerMachine {
        let budget = RestartBudget::new(limits.max_restarts);
        ServerMachine {
            role,
            limits,
            budget,
            has_worked: false,
            is_ending: false,
            state: ModelServerState::Idle,
        }
    }

    /// Returns when the machine needs a [`ServerEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            ModelServerState::Starting { until, .. } | ModelServerState::Pausing { until } => {
                Some(until)
            }
            ModelServerState::Ending { patience, .. } => Some(patience.at()),
            ModelServerState::Idle | ModelServerState::Healthy { .. } | ModelServerState::Over => {
                None
            }
        }
    }

    /// Returns when the current start began, if the server is starting.
    pub fn starting(&self) -> Option<Instant> {
        match self.state {
            ModelServerState::Starting { since, .. } => Some(since),
            _ => None,
        }
    }

    /// Returns whether the server is healthy, as far as is known.
    pub fn is_healthy(&self) -> bool {
        matches!(self.state, ModelServerState::Healthy { .. })
    }

    /// Returns whether the server does not run and will not be started.
    pub fn is_over(&self) -> bool {
        matches!(self.state, ModelServerState::Idle | ModelServerState::Over)
    }

    /// Handles an event that happened at `now`, and returns the actions that follow from it.
    pub fn on(&mut self, event: ServerEvent, now: Instant) -> Vec<ServerAction> {
        match (self.state, event) {
            (ModelServerState::Idle, ServerEvent::Begin) => self.start(now),
            (ModelServerState::Starting { since, .. }, ServerEvent::Answered) => {
                self.has_worked = true;
                self.state = ModelServerState::Healthy { since: now };
                vec![ServerAction::Ready(now - since)]
            }
            (ModelServerState::Starting { .. }, ServerEvent::NotStarted) => {
                self.failed(ServerFailure::NotStarted, Duration::ZERO, now)
            }
            (ModelServerState::Starting { .. }, ServerEvent::Exited(exit)) => {
                self.failed(ServerFailure::Exited(exit), Duration::ZERO, now)
            }
            (ModelServerState::Healthy { since }, ServerEvent::Exited(exit)) => {
                self.failed(ServerFailure::Exited(exit), now - since, now)
            }
            (ModelServerState::Starting { .. }, ServerEvent::Deadline) => self.silent(now),
            (ModelServerState::Pausing { .. }, ServerEvent::Deadline) => self.start(now),
            (ModelServerState::Ending { then, .. }, ServerEvent::Exited(_)) => {
                self.ended(then, now)
            }
            (
                ModelServerState::Ending {
                    then,
                    patience: StopDeadline::KillAt(_),
                },
                ServerEvent::Deadline,
            ) => self.kill(then, now),
            (ModelServerState::Ending { .. }, ServerEvent::Deadline) => {
                self.state = ModelServerState::Over;
                vec![ServerAction::Abandon]
            }
            (
                ModelServerState::Pausing { .. },
                ServerEvent::EndIsNear | ServerEvent::Stop | ServerEvent::Kill,
            )
            | (ModelServerState::Idle, ServerEvent::Stop) => self.over(),
            (
                ModelServerState::Starting { .. } | ModelServerState::Healthy { .. },
                ServerEvent::Stop | ServerEvent::Kill,
            ) if self.role == ServerRole::Guest => self.over(),
            (
                ModelServerState::Starting { .. } | ModelServerState::Healthy { .. },
                ServerEvent::Stop,
            ) => self.end(AfterEnd::Over, now),
            (ModelServerState::Ending { patience, .. }, ServerEvent::Stop) => {
                self.state = ModelServerState::Ending {
                    then: AfterEnd::Over,
                    patience,
                };
                Vec::new()
            }
            (
                ModelServerState::Starting { .. }
                | ModelServerState::Healthy { .. }
                | ModelServerState::Ending { .. },
                ServerEvent::Kill,
            ) => self.kill(AfterEnd::Over, now),
            (_, ServerEvent::EndIsNear) => {
                self.is_ending = true;
                Vec::new()
            }
            (
                ModelServerState::Idle
                | ModelServerState::Starting { .. }
                | ModelServerState::Healthy { .. }
                | ModelServerState::Pausing { .. }
                | ModelServerState::Ending { .. }
                | ModelServerState::Over,
                _,
            ) => Vec::new(),
        }
    }

    fn start(&mut self, now: Instant) -> Vec<ServerAction> {
        self.state = ModelServerState::Starting {
            since: now,
            until: now + self.limits.start_timeout,
        };
        if self.role == ServerRole::Host {
            vec![ServerAction::Start]
        } else {
            Vec::new()
        }
    }

    fn silent(&mut self, now: Instant) -> Vec<ServerAction> {
        let cause = ServerFailure::Silent(self.limits.start_timeout);
        match self.role {
            ServerRole::Host => self.end(AfterEnd::Retry(cause), now),
            ServerRole::Guest => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn end(&mut self, then: AfterEnd, now: Instant) -> Vec<ServerAction> {
        self.state = ModelServerState::Ending {
            then,
            patience: StopDeadline::KillAt(now + self.limits.stop_timeout),
        };
        vec![ServerAction::Send(libc::SIGTERM)]
    }

    fn kill(&mut self, then: AfterEnd, now: Instant) -> Vec<ServerAction> {
        self.state = ModelServerState::Ending {
            then,
            patience: StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
        vec![ServerAction::Send(libc::SIGKILL)]
    }

    fn ended(&mut self, then: AfterEnd, now: Instant) -> Vec<ServerAction> {
        match then {
            AfterEnd::Over => self.over(),
            AfterEnd::Retry(cause) => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn failed(&mut self, cause: ServerFailure, life: Duration, now: Instant) -> Vec<ServerAction> {
        if self.is_ending {
            return self.over();
        }
        if !self.has_worked {
            self.state = ModelServerState::Over;
            return vec![ServerAction::GiveUp(cause, GiveUpReason::NeverWorked)];
        }
        let Some(restart) = self.budget.take(life) else {
            self.state = ModelServerState::Over;
            return vec![ServerAction::GiveUp(cause, GiveUpReason::Spent)];
        };
        self.state = ModelServerState::Pausing {
            until: now + restart.after,
        };
        vec![ServerAction::Promise(cause, restart)]
    }

    fn over(&mut self) -> Vec<ServerAction> {
        self.state = ModelServerState::Over;
        Vec::new()
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_methods,
    reason = "tests need some `Instant` to count from"
)]
mod tests;
