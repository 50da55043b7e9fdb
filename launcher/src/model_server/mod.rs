//! The model server of a node: `rrun` starts it before the ranks, keeps it running, and ends it
//! after them.
//!
//! ```text
//! plan ─► Process: own session, log in logs/model_server_<host>.log ─► Guard: kills its group if
//!                │ exits                       ▲ start, signals         the launcher is killed
//!                ▼                             │
//! Probe ──answers──► Machine (pure) ───────────┴──► News for the driver: ready, failed
//! ```

pub mod machine;
pub mod probe;
pub mod process;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jobs::time::now;
use tokio::select;
use tokio::time::sleep_until;

use crate::if_any::if_any;
use crate::model_server::machine::{ServerAction, ServerEvent, ServerFailure, ServerMachine};
use crate::model_server::probe::{HealthProbe, ask};
use crate::model_server::process::ServerProcess;
use crate::plan::{ServerPlan, ServerRole};
use crate::process::leftover::{Leftovers, Spared};
use crate::say;

/// Interval between two progress lines while the launch waits for the server.
const PROGRESS: Duration = Duration::from_secs(10);

/// News about the server for the launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The server is healthy.
    Ready,
    /// The server has failed for good, for this reason.
    Failed(String),
}

/// The model server of this node.
#[derive(Debug)]
pub struct SupervisedServer<'a> {
    plan: &'a ServerPlan,
    machine: ServerMachine<'a>,
    process: Option<ServerProcess>,
    probe: Option<HealthProbe>,
    progress_at: Instant,
    /// The last probe's error when its start timed out.
    unanswered: String,
}

impl<'a> SupervisedServer<'a> {
    /// Returns a server that has not been started.
    pub fn new(plan: &'a ServerPlan) -> SupervisedServer<'a> {
        SupervisedServer {
            plan,
            machine: ServerMachine::new(plan),
            process: None,
            probe: None,
            progress_at: now(),
            unanswered: String::new(),
        }
    }

    /// Returns whether ranks may be started.
    pub fn is_healthy(&self) -> bool {
        self.machine.is_healthy()
    }

    /// Returns whether the server does not run and will not be started.
    pub fn is_over(&self) -> bool {
        self.machine.is_over()
    }

    /// Returns the processes that must not be taken for leftovers of a rank.
    pub fn spared(&self) -> Spared {
        self.process
            .as_ref()
            .map(ServerProcess::spared)
            .unwrap_or_default()
    }

    /// Starts the server. Reports a failure instead if another process already answers at its
    /// address.
    pub async fn begin(&mut self) -> Option<News> {
        let health = &self.plan.server.health;
        if self.plan.role == ServerRole::Host && ask(health).await.is_ok() {
            let why = format!(
                "the model server was not started: {health} already answers: another server, or \
                 that of another launch, is running there"
            );
            say::error(&why);
            self.on(ServerEvent::Stop);
            return Some(News::Failed(why));
        }
        if self.plan.role == ServerRole::Guest {
            say::info(format_args!(
                "waiting for the model server of this node, {health}"
            ));
            self.ask();
        }
        self.on(ServerEvent::Begin)
    }

    /// Waits for the next news other than an exit. Cancel-safe: dropping the future loses nothing.
    pub async fn recv(&mut self) -> Option<News> {
        let deadline = self.machine.deadline();
        let (is_starting, progress_at) = (self.machine.starting().is_some(), self.progress_at);
        let probe = self.probe.as_mut().filter(|_| is_starting);
        select! {
            () = if_any(probe.map(HealthProbe::answered)) => self.on(ServerEvent::Answered),
            () = if_any(deadline.map(|at| sleep_until(at.into()))) => {
                self.unanswered = self.why();
                self.on(ServerEvent::Deadline)
            }
            () = sleep_until(progress_at.into()), if is_starting => {
                self.say_progress();
                None
            }
        }
    }

    /// Checks whether the server has exited, and if so ends its leftovers.
    pub fn exited(&mut self, leftovers: &Leftovers, ranks: &BTreeSet<i32>) -> Option<News> {
        let process = self.process.as_mut()?;
        let (exit, _) = process.leader.peek()?;
        process.kill_leftovers(leftovers, ranks);
        self.probe = None;
        self.on(ServerEvent::Exited(exit))
    }

    /// Tells the server that the launch is ending ([`ServerEvent::EndIsNear`]), that it is not needed
    /// any more, or that it must end at once.
    pub fn tell(&mut self, event: ServerEvent) {
        self.on(event);
    }

    /// Kills the leftovers of a server that has exited. Returns the number of living processes.
    pub fn kill_leftovers(&self, leftovers: &Leftovers, ranks: &BTreeSet<i32>) -> usize {
        self.process
            .as_ref()
            .map_or(0, |process| process.kill_leftovers(leftovers, ranks))
    }

    /// Reaps the server after it has exited.
    pub fn reap(&mut self) {
        if let Some(process) = self.process.take() {
            process.reap();
        }
    }

    fn on(&mut self, event: ServerEvent) -> Option<News> {
        let action = self.machine.on(event, now())?;
        self.act(action)
    }

    fn act(&mut self, action: ServerAction) -> Option<News> {
        match action {
            ServerAction::Start => return self.start(),
            ServerAction::Ready(after) => {
                self.probe = None;
                say::info(format_args!(
                    "model server: {} answers after {} s",
                    self.plan.server.health,
                    after.as_secs()
                ));
                return Some(News::Ready);
            }
            ServerAction::Send(signal) => {
                if let Some(process) = &self.process {
                    process.leader.signal(signal);
                }
            }
            ServerAction::Promise(cause, restart) => {
                let (number, of, after) = (restart.number, restart.of, restart.after.as_secs());
                let restart = format!("restart {number} of {of} in {after} s, the ranks continue");
                say::warning(format_args!("{}; {restart}", self.failure(cause)));
                self.say_last_lines();
            }
            ServerAction::GiveUp { cause, has_worked } => {
                let restarts = if has_worked {
                    "; no restart is left"
                } else {
                    ""
                };
                let why = format!("{}{restarts}", self.failure(cause));
                say::error(&why);
                self.say_last_lines();
                return Some(News::Failed(why));
            }
            ServerAction::Abandon => {
                say::error(format_args!(
                    "{} does not end even after SIGKILL and is left behind",
                    self.name()
                ));
            }
        }
        None
    }

    fn start(&mut self) -> Option<News> {
        self.reap();
        let server = &self.plan.server;
        match ServerProcess::start(self.plan) {
            Ok(process) => {
                let (pid, log) = (process.pid(), self.plan.log.display());
                let (health, at_most) = (&server.health, server.start_timeout.0.as_secs());
                say::info(format_args!(
                    "model server started (pid {pid}), its output is in `{log}`; waiting for {health}, at most {at_most} s"
                ));
                self.process = Some(process);
                self.ask();
                None
            }
            Err(err) => {
                let program = &server.command[0];
                say::error(format_args!(
                    "cannot start the model server `{program}`: {err}"
                ));
                self.on(ServerEvent::NotStarted)
            }
        }
    }

    fn ask(&mut self) {
        self.probe = Some(HealthProbe::start(&self.plan.server.health));
        self.progress_at = now() + PROGRESS;
    }

    fn say_progress(&mut self) {
        self.progress_at = now() + PROGRESS;
        let Some(since) = self.machine.starting() else {
            return;
        };
        let server = &self.plan.server;
        let (time, limit) = ((now() - since).as_secs(), server.start_timeout.0.as_secs());
        let (health, why) = (&server.health, self.why());
        say::info(format_args!(
            "model server: still waiting for {health} after {time} of {limit} s: {why}"
        ));
    }

    /// Returns the error of the last probe.
    fn why(&self) -> String {
        let probe = self.probe.as_ref();
        probe.map(HealthProbe::why).unwrap_or_default()
    }

    fn failure(&self, cause: ServerFailure) -> String {
        let (name, health) = (self.name(), &self.plan.server.health);
        match cause {
            ServerFailure::Exited(exit) => format!("{name} {exit}"),
            ServerFailure::NeverAnswered(exit) => {
                format!("{name} {exit} before {health} had answered")
            }
            ServerFailure::Silent => format!(
                "{name} was ended: {health} had not answered after {} s ({})",
                self.plan.server.start_timeout.0.as_secs(),
                self.unanswered
            ),
            ServerFailure::NotStarted => format!("{name} could not be started"),
        }
    }

    fn name(&self) -> String {
        let program = self.plan.server.command.join(" ");
        let is_long = program.chars().count() > 100;
        let program = match is_long {
            true => program.chars().take(99).chain(['…']).collect(),
            false => program,
        };
        match &self.process {
            Some(process) => format!("model server (`{program}`, pid {})", process.pid()),
            None => format!("model server (`{program}`)"),
        }
    }

    /// Prints the end of its log.
    fn say_last_lines(&self) {
        if self.plan.role == ServerRole::Host {
            process::say_last_lines(&self.plan.log);
        }
    }
}
