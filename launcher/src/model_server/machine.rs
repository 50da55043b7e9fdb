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

use crate::plan::{ServerPlan, ServerRole};
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

/// Something for the caller to do.
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
    GiveUp {
        /// Its last failure.
        cause: ServerFailure,
        /// Whether it has ever been healthy, and has used up its restarts.
        has_worked: bool,
    },
    /// Report that the server does not end even after SIGKILL.
    Abandon,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFailure {
    /// The server exited after it had been healthy.
    Exited(Exit),
    /// The server exited before it had answered.
    NeverAnswered(Exit),
    /// The server had not answered in time, and was stopped.
    Silent,
    /// The program could not be executed.
    NotStarted,
}

/// The state of one server.
#[derive(Debug)]
pub struct ServerMachine<'a> {
    plan: &'a ServerPlan,
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
        /// Why it is ended, if it may be tried again.
        cause: Option<ServerFailure>,
        patience: StopDeadline,
    },
    Over,
}

impl<'a> ServerMachine<'a> {
    /// Returns the state of a server that has not been started.
    pub fn new(plan: &'a ServerPlan) -> ServerMachine<'a> {
        ServerMachine {
            plan,
            budget: RestartBudget::new(plan.server.max_restarts),
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

    /// Handles an event that happened at `now`, and returns what follows from it.
    pub fn on(&mut self, event: ServerEvent, now: Instant) -> Option<ServerAction> {
        use ServerEvent::{Answered, Begin, Deadline, EndIsNear, Exited, Kill, NotStarted, Stop};
        use State::{Ending, Healthy, Idle, Pausing, Starting};
        let is_guest = self.plan.role == ServerRole::Guest;
        match (self.state, event) {
            (Idle, Begin) | (Pausing { .. }, Deadline) => self.start(now),
            (Starting { since, .. }, Answered) => {
                self.has_worked = true;
                self.state = Healthy { since: now };
                Some(ServerAction::Ready(now - since))
            }
            (Starting { .. }, NotStarted) => {
                self.failed(ServerFailure::NotStarted, Duration::ZERO, now)
            }
            (Starting { .. }, Exited(exit)) => {
                self.failed(ServerFailure::NeverAnswered(exit), Duration::ZERO, now)
            }
            (Healthy { since }, Exited(exit)) => {
                self.failed(ServerFailure::Exited(exit), now - since, now)
            }
            (Starting { .. }, Deadline) => self.silent(now),
            (Ending { cause, .. }, Exited(_)) => match cause {
                None => self.over(),
                Some(cause) => self.failed(cause, Duration::ZERO, now),
            },
            (Ending { cause, patience }, Deadline) => match patience {
                StopDeadline::KillAt(_) => self.kill(cause, now),
                StopDeadline::GiveUpAt(_) => {
                    self.state = State::Over;
                    Some(ServerAction::Abandon)
                }
            },
            (Pausing { .. }, EndIsNear | Stop | Kill) | (Idle, Stop) => self.over(),
            (Starting { .. } | Healthy { .. }, Stop | Kill) if is_guest => self.over(),
            (Starting { .. } | Healthy { .. }, Stop) => self.end(None, now),
            (Ending { patience, .. }, Stop) => {
                self.state = Ending {
                    cause: None,
                    patience,
                };
                None
            }
            (Starting { .. } | Healthy { .. } | Ending { .. }, Kill) => self.kill(None, now),
            (_, EndIsNear) => {
                self.is_ending = true;
                None
            }
            // What is over ignores everything, and no other state is told anything else.
            (_, Begin | Answered | Exited(_) | NotStarted | Deadline | Stop | Kill) => None,
        }
    }

    fn start(&mut self, now: Instant) -> Option<ServerAction> {
        self.state = State::Starting {
            since: now,
            until: now + self.plan.server.start_timeout.0,
        };
        (self.plan.role == ServerRole::Host).then_some(ServerAction::Start)
    }

    fn silent(&mut self, now: Instant) -> Option<ServerAction> {
        let cause = ServerFailure::Silent;
        match self.plan.role {
            ServerRole::Host => self.end(Some(cause), now),
            ServerRole::Guest => self.failed(cause, Duration::ZERO, now),
        }
    }

    fn end(&mut self, cause: Option<ServerFailure>, now: Instant) -> Option<ServerAction> {
        let patience = StopDeadline::KillAt(now + self.plan.server.stop_timeout.0);
        self.state = State::Ending { cause, patience };
        Some(ServerAction::Send(libc::SIGTERM))
    }

    fn kill(&mut self, cause: Option<ServerFailure>, now: Instant) -> Option<ServerAction> {
        let patience = StopDeadline::GiveUpAt(now + UNINTERRUPTIBLE_GRACE);
        self.state = State::Ending { cause, patience };
        Some(ServerAction::Send(libc::SIGKILL))
    }

    fn failed(
        &mut self,
        cause: ServerFailure,
        life: Duration,
        now: Instant,
    ) -> Option<ServerAction> {
        if self.is_ending {
            return self.over();
        }
        let has_worked = self.has_worked;
        let restart = has_worked.then(|| self.budget.take(life)).flatten();
        let Some(restart) = restart else {
            self.state = State::Over;
            return Some(ServerAction::GiveUp { cause, has_worked });
        };
        self.state = State::Pausing {
            until: now + restart.after,
        };
        Some(ServerAction::Promise(cause, restart))
    }

    fn over(&mut self) -> Option<ServerAction> {
        self.state = State::Over;
        None
    }
}

#[cfg(test)]
mod tests {
    use jobs::time::now;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tests::cases;

    const CRASH: ServerEvent = ServerEvent::Exited(Exit::Code(1));

    /// A server that is restarted twice, whose first answer is awaited for ten minutes, and its end
    /// for half a minute; and its clock.
    struct ServerLife {
        machine: ServerMachine<'static>,
        start: Instant,
        now: Instant,
    }

    impl ServerLife {
        fn new(role: ServerRole) -> Self {
            let server = json!({"command": "serve", "health_port": 1, "max_restarts": 2});
            let plan = ServerPlan {
                server: serde_json::from_value(server).expect("a server"),
                log: "server.log".into(),
                role,
            };
            let now = now();
            Self {
                machine: ServerMachine::new(Box::leak(Box::new(plan))),
                start: now,
                now,
            }
        }

        /// Returns what follows from an event that comes `seconds` after the one before.
        fn on(&mut self, seconds: u64, event: ServerEvent) -> Option<ServerAction> {
            self.now += Duration::from_secs(seconds);
            self.machine.on(event, self.now)
        }

        /// Waits for the next deadline, and returns what follows.
        fn wait(&mut self) -> Option<ServerAction> {
            self.now = self.machine.deadline().expect("it waits for something");
            self.machine.on(ServerEvent::Deadline, self.now)
        }
    }

    /// Plays the life of a server, or of a `guest`, from its start: events, each some `+SECONDS`
    /// after the one before or at once, and `wait` for a deadline. Returns what follows from each
    /// and when, and the last state.
    fn played(script: &str) -> String {
        let guest = script.strip_prefix("guest\n");
        let role = guest.map_or(ServerRole::Host, |_| ServerRole::Guest);
        let (mut life, mut told) = (ServerLife::new(role), String::new());
        for line in guest.unwrap_or(script).lines() {
            let (word, after) = line.split_once(" +").unwrap_or((line, "0"));
            let after = after.parse().unwrap();
            let action = match word {
                "begin" => life.on(after, ServerEvent::Begin),
                "answers" => life.on(after, ServerEvent::Answered),
                "exits with 0" => life.on(after, ServerEvent::Exited(Exit::Code(0))),
                "crashes" => life.on(after, CRASH),
                "is killed" => life.on(after, ServerEvent::Exited(Exit::Signal(9))),
                "does not start" => life.on(after, ServerEvent::NotStarted),
                "the end is near" => life.on(after, ServerEvent::EndIsNear),
                "stop" => life.on(after, ServerEvent::Stop),
                "kill" => life.on(after, ServerEvent::Kill),
                "wait" => life.wait(),
                _ => panic!("{line}"),
            };
            let at = (life.now - life.start).as_secs();
            let action = action.map_or_else(String::new, |action| format!(" {action:?}"));
            told += &format!("{at:>4} s {word}:{action}\n");
        }
        let state = format!("{:?}", life.machine.state);
        told + state.split(' ').next().unwrap_or_default()
    }

    #[test]
    fn a_server_is_started_kept_and_ended() {
        rig::cases::check(cases("model_server/machine.txt"), played);
    }

    fn event() -> impl Strategy<Value = ServerEvent> {
        prop_oneof![
            Just(ServerEvent::Begin),
            Just(ServerEvent::Answered),
            Just(CRASH),
            Just(ServerEvent::NotStarted),
            Just(ServerEvent::Deadline),
            Just(ServerEvent::EndIsNear),
            Just(ServerEvent::Stop),
            Just(ServerEvent::Kill)
        ]
    }

    proptest! {
        /// For any events: there is at most one process at a time, none is started after a stop,
        /// and the server comes to an end.
        #[test]
        fn no_order_of_events_starts_two_or_leaves_one(events in prop::collection::vec((0_u64..700, event()), 0..60)) {
            let mut life = ServerLife::new(ServerRole::Host);
            let mut is_running = false;
            let mut stopped = false;
            for (seconds, event) in events {
                // Events that cannot happen: the exit, or the failed start, of a process that does
                // not run.
                if matches!(event, ServerEvent::Exited(_) | ServerEvent::NotStarted) && !is_running {
                    continue;
                }
                is_running &= !matches!(event, ServerEvent::Exited(_) | ServerEvent::NotStarted);
                stopped |= matches!(event, ServerEvent::Stop);
                if life.on(seconds, event) == Some(ServerAction::Start) {
                    prop_assert!(!is_running && !stopped);
                    is_running = true;
                }
            }
            life.on(0, ServerEvent::Stop);
            while life.machine.deadline().is_some() {
                let action = life.wait();
                prop_assert!(action != Some(ServerAction::Start));
            }
            prop_assert!(life.machine.is_over());
        }
    }
}
