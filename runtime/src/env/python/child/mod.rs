//! The state of one simulator process: its commands, the answers it owes, and its replacement.
//!
//! ```text
//! Down ──reset──► Starting ──hello, ready──► Up ──enough episodes──► Closing ──exit──► Starting
//!   ▲                 │                       │                         │
//!   └──── lost: exited, raised, no answer in time, invalid packet ──────┘
//! ```
//!
//! Commands wait in `held` until the process can take them. Those that arrive together are sent
//! together: copies of a VectorEnv step at once.
//!
//! A step may carry an offer: the episode that its copy begins if the step ends the one before. The
//! process answers the steps of a batch, then resets the copies that have taken an offer, and
//! answers these resets. So whatever a reset does, the end of the episode before it is known.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::env::python::copy::CopyState;
use crate::env::python::host::Host;
use crate::env::python::message::{self, CommandEntry, Packet};
use crate::env::python::observation::ProcessMemory;
use crate::env::python::process::{PythonProcess, ReceivedPacket};
use crate::env::{Command, EnvIndex};

mod answers;
mod loss;
mod work;

/// Time limit for a process to close its environments.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of start stages, beside one for each module that the job imports
/// (`rrun_worker.py` has four). Each stage extends the start by up to `--stall-timeout`, so the
/// number must be limited for a start that never ends.
pub const MOST_STAGES: usize = 16;
/// Maximum bytes of a reason, because it is written to the journal and to messages, and a packet
/// may have 200 kB.
const LONGEST_REASON: usize = 16_000;

/// One process, running or not, and its copies.
pub struct Child {
    index: usize,
    gpu: Option<u32>,
    state: ChildState,
    process: Option<PythonProcess>,
    memory: Option<ProcessMemory>,
    copies: Vec<CopyState>,
    held: Vec<HeldCommand>,
    batches: VecDeque<SentBatch>,
    /// Time of the last expected sign of life from the process.
    since: Instant,
    /// Time at which its socket was closed.
    ended: Option<Instant>,
    sequence: u32,
    /// Number of episodes since it was started.
    served: u64,
    /// Number of stages that its start has reported.
    stages: usize,
    /// True if its start tries a reset with seed 0.
    probes_zero: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ChildState {
    Down,
    Starting { stage: String },
    Up,
    Closing,
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
    pub fn new(index: usize, envs: &[EnvIndex], gpu: Option<u32>, now: Instant) -> Self {
        Self {
            index,
            gpu,
            state: ChildState::Down,
            process: None,
            memory: None,
            copies: envs.iter().map(|env| CopyState::new(*env)).collect(),
            held: Vec::new(),
            batches: VecDeque::new(),
            since: now,
            ended: None,
            sequence: 0,
            served: 0,
            stages: 0,
            probes_zero: true,
        }
    }

    /// Returns the number of its process, if there is one.
    pub fn process_id(&self) -> Option<u64> {
        self.process.as_ref().map(|process| process.id)
    }

    /// Returns whether the process can take commands.
    pub fn is_up(&self) -> bool {
        self.state == ChildState::Up
    }

    /// Returns whether it waits for a fork server that imports.
    pub fn awaits_server(&self) -> bool {
        matches!(self.state, ChildState::Starting { .. }) && self.process.is_none()
    }

    /// Takes note of the stage of the fork server that it waits for.
    pub fn on_server_stage(&mut self, text: &str, now: Instant) {
        let stage = text.to_owned();
        (self.state, self.since) = (ChildState::Starting { stage }, now);
    }

    /// Starts the process, or waits for its fork server: [`Child::awaits_server`].
    pub fn start(&mut self, host: &mut Host, now: Instant) {
        let envs: Vec<_> = self.copies.iter().map(|copy| copy.env).collect();
        self.state = ChildState::Starting {
            stage: "start of the interpreter".to_owned(),
        };
        (self.since, self.ended, self.served, self.stages) = (now, None, 0, 0);
        self.probes_zero = host.probe_failure.is_none();
        self.copies.iter_mut().for_each(CopyState::renew);
        match host.start(self.index, &envs, self.gpu) {
            Ok(process) => self.process = process,
            Err(err) => {
                let python = host.terms.settings.python.display().to_string();
                self.lose(&format!("`{python}` cannot be started: {err}"), host);
            }
        }
    }

    /// Ends the process for good, without waiting for its answers.
    pub fn shut(&mut self, host: &mut Host, now: Instant) {
        self.held.clear();
        self.batches.clear();
        if self.state == ChildState::Up {
            self.close(now);
        } else if self.state != ChildState::Closing {
            self.state = ChildState::Down;
            self.process
                .take()
                .into_iter()
                .for_each(|process| host.bury(process));
        }
    }

    /// Asks the process to end. If resets are held, another is started afterwards.
    pub fn close(&mut self, now: Instant) {
        if let Some(process) = &self.process {
            // If the packet cannot be sent, the process is killed after the time limit.
            process.send(message::CLOSE).ok();
            (self.state, self.since) = (ChildState::Closing, now);
        }
    }

    /// Handles one packet or the end of the socket. Returns whether there may be more.
    pub fn on_socket(&mut self, host: &mut Host, now: Instant) -> bool {
        let Some(process) = &self.process else {
            return false;
        };
        match process.receive(&mut host.buffer) {
            ReceivedPacket::Packet(packet) => {
                match packet {
                    Ok(packet) => self.on_packet(packet, host, now),
                    Err(malformed) => {
                        self.lose(&format!("sent a malformed message: {malformed}"), host)
                    }
                }
                true
            }
            ReceivedPacket::Nothing => false,
            ReceivedPacket::Closed => {
                host.ignore(&process.socket);
                self.ended.get_or_insert(now);
                false
            }
        }
    }

    /// Reads the output of the process.
    pub fn on_output(&mut self, host: &Host) {
        let first = self.copies.first().map_or(0, |copy| copy.env.0);
        let Some(process) = &mut self.process else {
            return;
        };
        let (lines, more) = process.listen();
        lines
            .iter()
            .for_each(|line| tracing::debug!(target: "env", first, "{line}"));
        if !more {
            host.ignore(&process.output);
        }
    }

    /// Handles the exit of the process.
    pub fn on_end(&mut self, host: &mut Host, now: Instant) {
        // Earlier packets explain more than the exit code.
        let id = self.process_id();
        while self.on_socket(host, now) {}
        let Some(process) = self.process.as_mut().filter(|it| Some(it.id) == id) else {
            return;
        };
        if !process.has_ended() {
            return;
        }
        let ending = process.ending();
        if self.state != ChildState::Closing {
            return self.lose(&ending, host);
        }
        self.on_output(host);
        self.process
            .take()
            .into_iter()
            .for_each(|process| host.bury(process));
        (self.state, self.memory) = (ChildState::Down, None);
        self.flush(host, now);
    }

    fn on_packet(&mut self, packet: Packet, host: &mut Host, now: Instant) {
        match (&mut self.state, packet) {
            (ChildState::Starting { stage }, Packet::Stage(text))
                if self.stages < MOST_STAGES + host.terms.settings.imports.len() =>
            {
                *stage = text;
                self.stages += 1;
                self.since = now;
            }
            (ChildState::Starting { .. }, Packet::Stage(_)) => {
                self.lose("has too many stages of its start", host)
            }
            (ChildState::Starting { .. }, Packet::Hello(value)) if self.memory.is_none() => {
                if let Err(reason) = self.attach(value, host) {
                    self.lose(&reason, host);
                }
            }
            (ChildState::Starting { .. }, Packet::Ready) if self.memory.is_some() => {
                self.state = ChildState::Up;
                self.flush(host, now);
            }
            (ChildState::Starting { .. }, Packet::Refused(reason)) => self.refuse(&reason, host),
            // The environment is being closed, so the answers are not needed.
            (ChildState::Closing, Packet::Answers { .. }) => {}
            (ChildState::Up, Packet::Answers { sequence, replies }) => {
                match self.answer(sequence, &replies, host) {
                    Ok(()) => {
                        self.since = now;
                        self.flush(host, now);
                    }
                    Err(reason) => self.lose(&reason, host),
                }
            }
            (_, Packet::Error { local, reason }) => {
                let env = self.copies.get(usize::from(local)).map(|copy| copy.env.0);
                let whose = env
                    .filter(|_| self.copies.len() > 1)
                    .map_or(String::new(), |env| format!(" in environment {env}"));
                self.lose(&format!("{reason}{whose}"), host);
            }
            (state, packet) => {
                let reason = format!("sent {packet:?} while {state:?}")
                    .chars()
                    .take(200)
                    .collect::<String>();
                self.lose(&reason, host);
            }
        }
    }
}
