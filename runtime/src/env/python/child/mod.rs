//! The state of one simulator process: its commands, the answers it owes, and its replacement.
//!
//! ```text
//! Down ──reset──► Starting ──hello──► Up ──enough episodes──► Closing ──exit──► Starting
//!   ▲                 │                │                         │
//!   └──── lost: exited, raised, no answer in time, nonsense ─────┘
//! ```
//!
//! Commands wait in `held` until the process can take them. Those that arrive together are sent
//! together: copies of a VectorEnv step at once.
//!
//! A step may carry an offer: the episode that its copy begins if the step ends the one before. The
//! process answers the steps of a batch, then resets the copies that have taken an offer, and
//! answers these resets. So whatever a reset does, the end of the episode before it is known.

use std::collections::VecDeque;
use std::time::Instant;

use crate::env::python::copy::CopyState;
use crate::env::python::host::Host;
use crate::env::python::message::CommandEntry;
use crate::env::python::observation::ProcessMemory;
use crate::env::{Command, EnvError, EnvIndex};
use crate::python::{Cause, Loss, Ready, Said, Worker};

mod answers;
mod loss;
mod work;

/// Maximum number of start stages, beside one for each module that the job imports
/// (`rrun_worker.py` has four). Each stage extends the start by up to `--stall-timeout`, so the
/// number must be limited for a start that never ends.
pub const MOST_STAGES: usize = 16;

/// One process, running or not, and its copies.
pub struct Child {
    index: usize,
    gpu: Option<u32>,
    /// Number of its process.
    id: u64,
    worker: Option<Worker>,
    /// The stage of the fork server that it waits for.
    server: Option<ServerStage>,
    memory: Option<ProcessMemory>,
    copies: Vec<CopyState>,
    held: Vec<HeldCommand>,
    batches: VecDeque<SentBatch>,
    /// Number of episodes since it was started.
    served: u64,
    /// True if its start tries a reset with seed 0.
    probes_zero: bool,
}

/// What a fork server is at, and since when.
struct ServerStage {
    text: String,
    since: Instant,
}

/// A command that was not sent yet.
struct HeldCommand {
    local: usize,
    command: Command,
}

/// Commands that were sent together and are answered together.
struct SentBatch {
    sequence: u32,
    /// Those that have no answer yet.
    entries: Vec<CommandEntry>,
    /// The episodes that copies begin by themselves after the last answer.
    begun: Vec<CommandEntry>,
    /// True if `entries` are these episodes.
    follows: bool,
}

impl Child {
    /// Creates the state for these copies, without a process.
    pub fn new(index: usize, envs: &[EnvIndex], gpu: Option<u32>) -> Self {
        Self {
            index,
            gpu,
            id: 0,
            worker: None,
            server: None,
            memory: None,
            copies: envs.iter().map(|env| CopyState::new(*env)).collect(),
            held: Vec::new(),
            batches: VecDeque::new(),
            served: 0,
            probes_zero: true,
        }
    }

    /// Returns whether this is the number of its process.
    pub fn has(&self, process: u64) -> bool {
        self.worker.is_some() && self.id == process
    }

    /// Returns whether the process can take commands.
    pub fn is_up(&self) -> bool {
        self.worker.as_ref().is_some_and(Worker::is_up)
    }

    /// Returns whether it waits for a fork server that imports.
    pub fn awaits_server(&self) -> bool {
        self.server.is_some()
    }

    /// Takes note of the stage of the fork server that it waits for.
    pub fn on_server_stage(&mut self, text: &str, since: Instant) {
        let text = text.to_owned();
        self.server = Some(ServerStage { text, since });
    }

    /// Starts the process, or waits for its fork server: [`Child::awaits_server`].
    pub fn start(&mut self, host: &mut Host, now: Instant) {
        let envs: Vec<_> = self.copies.iter().map(|copy| copy.env).collect();
        (self.server, self.served) = (None, 0);
        self.probes_zero = host.probe_failure.is_none();
        self.copies.iter_mut().for_each(CopyState::renew);
        match host.start(self.index, &envs, self.gpu) {
            Ok(Some((id, worker))) => (self.id, self.worker) = (id, Some(worker)),
            Ok(None) => self.on_server_stage("start of the interpreter", now),
            Err(err) => {
                let python = host.terms.settings.python.display().to_string();
                self.on_server_stage("start of the interpreter", now);
                self.lose(&format!("`{python}` cannot be started: {err}"), host);
            }
        }
    }

    /// Gives its process up for good, without waiting for answers.
    pub fn shut(&mut self) -> Option<Worker> {
        self.worker.take()
    }

    /// Handles what one descriptor of the process has.
    pub fn on(&mut self, ready: Ready, host: &mut Host, now: Instant) {
        let Some(worker) = &mut self.worker else {
            return;
        };
        match worker.on(ready) {
            Ok(Some(said)) => self.said(said, host),
            Ok(None) => {}
            Err(loss) => self.over(loss, host),
        }
        self.flush(host, now);
    }

    fn said(&mut self, said: Said, host: &mut Host) {
        let stall = Some(host.terms.stall_timeout);
        let done = match said {
            Said::Stage(_) => {
                self.worker
                    .iter_mut()
                    .for_each(|worker| worker.expect_by(stall));
                Ok(())
            }
            Said::Hello(text) => self.attach(&text, host),
            Said::Answer {
                sequence,
                count,
                body,
            } => {
                let answered = self.answer(sequence, count, &body, host);
                let limit = stall.filter(|_| !self.batches.is_empty());
                self.worker
                    .iter_mut()
                    .for_each(|worker| worker.expect_by(limit));
                answered
            }
            Said::Note(_) => Ok(()),
            Said::Failed { reason, .. } => Err(format!("refused its commands: {reason}")),
        };
        if let Err(reason) = done {
            self.lose(&reason, host);
        }
    }

    /// Handles the end of the process.
    fn over(&mut self, loss: Loss, host: &mut Host) {
        if self.worker.as_ref().is_some_and(Worker::is_closing) {
            self.memory = None;
            let worker = self.worker.take();
            worker
                .into_iter()
                .for_each(|worker| host.bury(self.id, worker));
            return;
        }
        let whose = match loss.cause {
            Cause::Refused => {
                host.failure
                    .get_or_insert_with(|| EnvError::Setup(loss.text.clone()));
                String::new()
            }
            Cause::GaveUp(Some(copy)) if self.copies.len() > 1 => {
                let copy = self.copies.get(usize::from(copy));
                copy.map_or_else(String::new, |copy| {
                    format!(" in environment {}", copy.env.0)
                })
            }
            Cause::GaveUp(_) | Cause::Seen => String::new(),
        };
        self.lose(&format!("{}{whose}", loss.text), host);
    }
}
