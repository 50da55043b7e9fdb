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
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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
            state: State::Idle,
        }
    }

    /// Returns when the machine needs a [`ServerEvent::Deadline`].
    pub fn deadline(&self) -> Option<Instant> {
        match self.state {
            State::Starting { until, .. } | State::Pausing { until } => Some(until),
            State::Ending { patience, .. } => Some(patience.at()),
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
    pub fn on(&mut self, event: ServerEvent, now: Instant) -> Vec<ServerAction> {
        use ServerEvent::{Answered, Begin, Deadline, EndIsNear, Exited, Kill, NotStarted, Stop};
        use State::{Ending, Healthy, Idle, Pausing, Starting};
        let is_guest = self.role == ServerRole::Guest;
        match (self.state, event) {
            (Idle, Begin) | (Pausing { .. }, Deadline) => self.start(now),
            (Starting { since, .. }, Answered) => {
                self.has_worked = true;
                self.state = Healthy { since: now };
                vec![ServerAction::Ready(now - since)]
            }
            (Starting { .. }, NotStarted) => {
                self.failed(ServerFailure::NotStarted, Duration::ZERO, now)
            }
            (Starting { .. }, Exited(exit)) => {
                self.failed(ServerFailure::Exited(exit), Duration::ZERO, now)
            }
            (Healthy { since }, Exited(exit)) => {
                self.failed(ServerFailure::Exited(exit), now - since, now)
            }
            (Starting { .. }, Deadline) => self.silent(now),
            (Ending { then, .. }, Exited(_)) => match then {
                AfterEnd::Over => self.over(),
                AfterEnd::Retry(cause) => self.failed(cause, Duration::ZERO, now),
            },
            (Ending { then, patience }, Deadline) => match patience {
                StopDeadline::KillAt(_) => self.kill(then, now),
                StopDeadline::GiveUpAt(_) => {
                    self.state = State::Over;
                    vec![ServerAction::Abandon]
                }
            },
            (Pausing { .. }, EndIsNear | Stop | Kill) | (Idle, Stop) => self.over(),
            (Starting { .. } | Healthy { .. }, Stop | Kill) if is_guest => self.over(),
            (Starting { .. } | Healthy { .. }, Stop) => self.end(AfterEnd::Over, now),
            (Ending { patience, .. }, Stop) => {
                let then = AfterEnd::Over;
                self.state = Ending { then, patience };
                Vec::new()
            }
            (Starting { .. } | Healthy { .. } | Ending { .. }, Kill) => {
                self.kill(AfterEnd::Over, now)
            }
            (_, EndIsNear) => {
                self.is_ending = true;
                Vec::new()
            }
            // What is over ignores everything, and no other state is told anything else.
            (_, Begin | Answered | Exited(_) | NotStarted | Deadline | Stop | Kill) => Vec::new(),
        }
    }

    fn start(&mut self, now: Instant) -> Vec<ServerAction> {
        self.state = State::Starting {
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
        self.state = State::Ending {
            then,
            patience: StopDeadline::KillAt(now + self.limits.stop_timeout),
        };
        vec![ServerAction::Send(libc::SIGTERM)]
    }

    fn kill(&mut self, then: AfterEnd, now: Instant) -> Vec<ServerAction> {
        self.state = State::Ending {
            then,
            patience: StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE),
        };
        vec![ServerAction::Send(libc::SIGKILL)]
    }

    fn failed(&mut self, cause: ServerFailure, life: Duration, now: Instant) -> Vec<ServerAction> {
        if self.is_ending {
            return self.over();
        }
        let restart = self.has_worked.then(|| self.budget.take(life)).flatten();
        let Some(restart) = restart else {
            self.state = State::Over;
            let why = match self.has_worked {
                true => GiveUpReason::Spent,
                false => GiveUpReason::NeverWorked,
            };
            return vec![ServerAction::GiveUp(cause, why)];
        };
        self.state = State::Pausing {
            until: now + restart.after,
        };
        vec![ServerAction::Promise(cause, restart)]
    }

    fn over(&mut self) -> Vec<ServerAction> {
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
