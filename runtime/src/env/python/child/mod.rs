//! One simulator process from this side: what it was asked, what it owes, what becomes of it.
//!
//! ```text
//! Down ──reset──► Starting ──hello, ready──► Up ──enough episodes──► Closing ──exit──► Starting
//!   ▲                 │                       │                         │
//!   └──── lost: it ended, raised, was silent, spoke nonsense ───────────┘
//! ```
//!
//! Commands wait in `held` until the process can take them. Those of copies that step together (a VectorEnv) wait for
//! each other too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::copy::CopyState;
use super::host::Host;
use super::message::{self, Entry, Packet};
use super::process::{Process, Received};
use super::seen::Memory;
use crate::env::{Command, EnvIndex};

mod answers;
mod loss;
mod work;

/// What a process may take to close its environments.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Stages of a start, at most, beside one for each module that the job imports (`rrun_worker.py` has four). Each gives a
/// start as long as `--stall-timeout`, so one that never ends must not have as many as it likes.
const MOST_STAGES: usize = 16;
/// Bytes of a reason, at most: it is in the journal and in messages, and a packet may have two hundred thousand.
const LONGEST_REASON: usize = 16_000;

/// One process, dead or alive, and its copies.
pub struct Child {
    index: usize,
    gpu: Option<u32>,
    state: State,
    process: Option<Process>,
    memory: Option<Memory>,
    copies: Vec<CopyState>,
    held: Vec<Held>,
    batches: VecDeque<Batch>,
    /// When the process last gave a sign of life that was owed.
    since: Instant,
    /// When its socket ended.
    ended: Option<Instant>,
    sequence: u32,
    /// Episodes since it was started.
    served: u64,
    /// Stages that its start has had.
    stages: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Down,
    Starting { stage: String },
    Up,
    Closing,
}

/// A command that waits.
struct Held {
    local: usize,
    command: Command,
    render: bool,
    since: Instant,
}

/// Commands that were sent together, and are answered so.
struct Batch {
    sequence: u32,
    entries: Vec<Entry>,
}

impl Child {
    /// The process of these copies, not started.
    pub fn new(index: usize, envs: &[EnvIndex], gpu: Option<u32>, now: Instant) -> Self {
        Self {
            index,
            gpu,
            state: State::Down,
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
        }
    }

    /// Number of its process, if there is one.
    pub fn process_id(&self) -> Option<u64> {
        self.process.as_ref().map(|process| process.id)
    }

    /// Whether it can be given work.
    pub fn is_up(&self) -> bool {
        self.state == State::Up
    }

    /// Starts its process.
    pub fn start(&mut self, host: &mut Host, now: Instant) {
        let envs: Vec<_> = self.copies.iter().map(|copy| copy.env).collect();
        self.state = State::Starting { stage: "start of the interpreter".to_owned() };
        (self.since, self.ended, self.served, self.stages) = (now, None, 0, 0);
        self.copies.iter_mut().for_each(CopyState::renew);
        match host.start(self.index, &envs, self.gpu) {
            Ok(process) => self.process = Some(process),
            Err(err) => {
                let python = host.terms.settings.python.display().to_string();
                self.lose(&format!("`{python}` cannot be started: {err}"), host);
            }
        }
    }

    /// Ends it for good: what it owes is not waited for.
    pub fn shut(&mut self, host: &mut Host, now: Instant) {
        self.held.clear();
        self.batches.clear();
        if self.state == State::Up {
            self.close(now);
        } else if self.state != State::Closing {
            self.process.take().into_iter().for_each(|process| host.bury(process));
        }
    }

    /// Asks it to end. Resets that are held start another.
    pub fn close(&mut self, now: Instant) {
        if let Some(process) = &self.process {
            // One that cannot be asked is killed when its time is up.
            process.send(message::CLOSE).ok();
            (self.state, self.since) = (State::Closing, now);
        }
    }

    /// Its socket has a packet, or is at its end. Says whether it may have more.
    pub fn on_socket(&mut self, host: &mut Host, now: Instant) -> bool {
        let Some(process) = &self.process else { return false };
        match process.receive(&mut host.buffer) {
            Received::Packet(packet) => {
                match packet {
                    Ok(packet) => self.on_packet(packet, host, now),
                    Err(malformed) => self.lose(&format!("sent nonsense: {malformed}"), host),
                }
                true
            }
            Received::Nothing => false,
            Received::Closed => {
                host.ignore(&process.socket);
                self.ended.get_or_insert(now);
                false
            }
        }
    }

    /// Its process has written something.
    pub fn on_output(&mut self, host: &Host) {
        let first = self.copies.first().map_or(0, |copy| copy.env.0);
        let Some(process) = &mut self.process else { return };
        let (lines, more) = process.listen();
        lines.iter().for_each(|line| tracing::debug!(target: "env", first, "{line}"));
        if !more {
            host.ignore(&process.output);
        }
    }

    /// Its process has ended.
    pub fn on_end(&mut self, host: &mut Host, now: Instant) {
        // What it said before is worth more than how it ended.
        while self.on_socket(host, now) {}
        let Some(process) = &self.process else { return };
        if self.state != State::Closing {
            return self.lose(&process.ending(), host);
        }
        self.on_output(host);
        self.process.take().into_iter().for_each(|process| host.bury(process));
        (self.state, self.memory) = (State::Down, None);
        self.flush(host, now);
    }

    fn on_packet(&mut self, packet: Packet, host: &mut Host, now: Instant) {
        match (&mut self.state, packet) {
            (State::Starting { stage }, Packet::Stage(text))
                if self.stages < MOST_STAGES + host.terms.settings.imports.len() =>
            {
                *stage = text;
                self.stages += 1;
                self.since = now;
            }
            (State::Starting { .. }, Packet::Stage(_)) => self.lose("has too many stages of its start", host),
            (State::Starting { .. }, Packet::Hello(value)) if self.memory.is_none() => {
                if let Err(reason) = self.attach(value, host) {
                    self.lose(&reason, host);
                }
            }
            (State::Starting { .. }, Packet::Ready) if self.memory.is_some() => {
                self.state = State::Up;
                self.flush(host, now);
            }
            (State::Starting { .. }, Packet::Refused(reason)) => self.refuse(&reason, host),
            // It is being closed with everything, and nobody listens.
            (State::Closing, Packet::Answers { .. }) => {}
            (State::Up, Packet::Answers { sequence, replies }) => match self.answer(sequence, &replies, host) {
                Ok(()) => {
                    self.since = now;
                    self.flush(host, now);
                }
                Err(reason) => self.lose(&reason, host),
            },
            (_, Packet::Error { local, reason }) => {
                let env = self.copies.get(usize::from(local)).map(|copy| copy.env.0);
                let whose =
                    env.filter(|_| self.copies.len() > 1).map_or(String::new(), |env| format!(" in environment {env}"));
                self.lose(&format!("{reason}{whose}"), host);
            }
            (state, packet) => {
                let reason = format!("sent {packet:?} while {state:?}").chars().take(200).collect::<String>();
                self.lose(&reason, host);
            }
        }
    }
}
