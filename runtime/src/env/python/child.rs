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

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use jobs::journal::Blame;

use crate::env::python::copy::CopyState;
use crate::env::python::hello::Hello;
use crate::env::python::host::Host;
use crate::env::python::memory::{CALLS, CopyMemory};
use crate::env::python::message::{Entry, EpisodeId, replies};
use crate::env::{Answer, Command, EnvError, EnvIndex, Render};
use crate::python::{Cause, Loss, Said, Worker};

/// How the stages begin in which a start tries a reset, in `rrun_worker.py`.
const PROBE_RESET: &str = "reset(seed=";
/// The first of them.
const PROBE: &str = "reset(seed=0)";

/// One process, running or not, and its copies.
pub struct Child {
    index: usize,
    /// Its copies in the whole environment.
    pub envs: Range<usize>,
    pub worker: Option<Worker>,
    /// True while a fork server imports for it.
    pub awaits_server: bool,
    memory: Option<CopyMemory>,
    copies: Vec<CopyState>,
    /// Commands that were not sent yet, and the copies that they are for.
    held: Vec<(usize, Command)>,
    /// The copies that have not answered yet, in the order in which they have to, each with the
    /// number of its request.
    sent: VecDeque<(u32, usize)>,
    /// Number of episodes since it was started.
    served: u64,
    /// True if its start tries a reset with seed 0.
    probes_zero: bool,
}

impl Child {
    /// Creates the state for these copies, without a process.
    pub fn new(index: usize, envs: Range<usize>) -> Self {
        Self {
            index,
            worker: None,
            awaits_server: false,
            memory: None,
            copies: envs.clone().map(CopyState::new).collect(),
            envs,
            held: Vec::new(),
            sent: VecDeque::new(),
            served: 0,
            probes_zero: true,
        }
    }

    /// Starts the process, or waits for its fork server.
    pub fn start(&mut self, host: &mut Host) {
        (self.awaits_server, self.served) = (false, 0);
        self.probes_zero = host.probe_failure.is_none();
        self.copies.iter_mut().for_each(|copy| copy.episode = None);
        match host.start(self.index) {
            Ok(Some(worker)) => self.worker = Some(worker),
            Ok(None) => self.awaits_server = true,
            Err(err) => {
                let python = host.settings.python.display();
                let reason = format!("`{python}` cannot be started: {err}");
                self.lose(&reason, host);
            }
        }
    }

    /// Handles what the process has.
    pub fn turn(&mut self, host: &mut Host) {
        if let Some(worker) = &mut self.worker {
            match worker.turn() {
                Ok(Some(said)) => self.said(said, host),
                Ok(None) => {}
                Err(loss) => self.over(&loss, host),
            }
        }
        self.flush(host);
    }

    fn said(&mut self, said: Said, host: &mut Host) {
        let done = match said {
            Said::Hello(text) => self.attach(&text, host),
            Said::Answer {
                sequence,
                count,
                body,
            } => self.answer(sequence, count, &body, host),
            Said::Failed { reason, .. } => Err(format!("refused its commands: {reason}")),
            Said::Note(_) => return,
            Said::Stage(_) => Ok(()),
        };
        if let Err(reason) = done {
            return self.lose(&reason, host);
        }
        if let Some(worker) = &mut self.worker {
            let is_owing = !worker.is_up() || !self.sent.is_empty();
            worker.expect_by(is_owing.then_some(host.config.place.stall_timeout));
        }
    }

    /// Checks the description of the environment, and maps shared memory of the size it needs.
    fn attach(&mut self, text: &[u8], host: &mut Host) -> Result<(), String> {
        let hello = Hello::new(text).map_err(|why| format!("describes itself wrongly: {why}"))?;
        let first = host.hello.get_or_insert_with(|| Arc::new(hello.clone()));
        if !first.same(&hello) {
            return Err(format!("shows something else than the first: {hello:?}"));
        }
        let given = host.settings.job.language_instruction.as_deref();
        let language: Arc<str> = given.unwrap_or(&first.interface.language).into();
        for copy in &mut self.copies {
            copy.language = Arc::clone(&language);
        }
        let memory = |worker| CopyMemory::new(worker, first, self.copies.len());
        self.memory = self.worker.as_ref().map(memory).transpose()?;
        Ok(())
    }

    /// Handles the end of the process.
    fn over(&mut self, loss: &Loss, host: &mut Host) {
        if self.worker.as_ref().is_some_and(Worker::is_closing) {
            self.memory = None;
            return self.bury(host);
        }
        let mut whose = String::new();
        match loss.cause {
            Cause::Refused => host.fail(&loss.text, &[]),
            Cause::GaveUp(Some(copy)) if self.copies.len() > 1 => {
                if let Some(copy) = self.copies.get(usize::from(copy)) {
                    whose = format!(" in environment {}", copy.env.0);
                }
            }
            Cause::GaveUp(_) | Cause::Seen => {}
        }
        self.lose(&format!("{}{whose}", loss.text), host);
    }

    /// Gives up on whatever has exceeded its time limit.
    pub fn expire(&mut self, host: &mut Host, now: Instant) {
        if let Some(Err(loss)) = self.worker.as_mut().map(|worker| worker.expire(now)) {
            self.lose(&loss.text, host);
        }
    }

    fn bury(&mut self, host: &mut Host) {
        if let Some(worker) = self.worker.take() {
            host.bury(worker);
        }
    }

    /// Gives up the process, which is gone or will be. Commands that wait for it are answered with
    /// the reason; other copies get it with their next command.
    fn lose(&mut self, reason: &str, host: &mut Host) {
        let starting = self.memory.is_none();
        let during = self.worker.as_ref().map(Worker::during);
        if starting && self.probes_zero && during == Some(PROBE) {
            // No episode has the seed 0, so the next start tries that of the job's first episode.
            host.probe_failure.get_or_insert_with(|| reason.to_owned());
            self.bury(host);
            return self.start(host);
        }
        let (mut told, mut stderr) = (host.told(reason, &self.doing()), Vec::new());
        let culprit = (!starting).then(|| self.culprit(host)).flatten();
        if let Some(mut worker) = self.worker.take() {
            let last = worker.loss(reason);
            told += &format!(", process {}", last.pid);
            stderr = last.lines;
            host.bury(worker);
        }
        if starting {
            host.fail(&told, &stderr);
        }
        let lost = |env| EnvError::Lost {
            env,
            blame: match culprit {
                Some(culprit) if culprit == env => Blame::Own,
                Some(_) => Blame::Neighbour,
                None if starting => Blame::Start,
                None => Blame::Unknown,
            },
            reason: told.clone(),
            stderr: stderr.clone(),
        };
        self.memory = None;
        self.sent.clear();
        for copy in &mut self.copies {
            let env = copy.env;
            match (copy.doing.take(), copy.episode.take()) {
                (Some(entry), _) if entry.is_step() => {
                    host.answers.push((env, Answer::Step(Err(lost(env)))));
                }
                (Some(_), _) => host.answers.push((env, Answer::Reset(Err(lost(env))))),
                (None, Some(_)) => copy.lost = Some(lost(env)),
                (None, None) => {}
            }
        }
        // A reset that was not sent yet goes to the next process, unless this one could not even
        // start.
        for (local, command) in std::mem::take(&mut self.held) {
            let copy = &mut self.copies[local];
            if starting || matches!(command, Command::Step { .. }) {
                copy.lost = None;
                let answer = Answer::refuse(&command, lost(copy.env));
                host.answers.push((copy.env, answer));
            } else {
                self.held.push((local, command));
            }
        }
    }

    /// Returns the copy whose call the process was at, if a call is that of one copy.
    fn culprit(&self, host: &Host) -> Option<EnvIndex> {
        let mut busy = self.copies.iter().filter(|copy| copy.is_busy());
        if let (Some(only), None) = (busy.next(), busy.next()) {
            return Some(only.env);
        }
        if host.hello.as_ref().is_some_and(|hello| hello.together) {
            return None;
        }
        let (copy, call) = self.memory.as_ref()?.call_now()?;
        let copy = self.copies.get(copy).filter(|_| CALLS.contains(&call))?;
        copy.doing.map(|_| copy.env)
    }

    /// Returns a description of the last known activity of the process.
    fn doing(&self) -> String {
        let Some(memory) = &self.memory else {
            let stage = self.worker.as_ref().map(Worker::during);
            let stage = stage.unwrap_or("start of the interpreter");
            let note = match stage.starts_with(PROBE_RESET) {
                true => ", which is tried at the start of a process and is no episode",
                false => "",
            };
            return format!("it was at `{stage}`{note}");
        };
        let copy = |(copy, call)| Some((self.copies.get(copy)?, call));
        let at = memory.call_now().and_then(copy);
        let Some((env, call, episode)) =
            at.and_then(|(it, call)| Some((it.env.0, call, it.episode?)))
        else {
            return "it was not at work".to_owned();
        };
        let steps = episode.steps;
        let call = match call {
            1 => "reset".to_owned(),
            2 => format!("step {steps}"),
            3 => format!("render after step {steps}"),
            4 => format!("observation after step {steps}"),
            _ => return format!("no call was under way after step {steps} of environment {env}"),
        };
        let (episode, seed) = (episode.id.episode, episode.id.seed);
        format!("its last call was `{call}` of environment {env}, episode {episode}, seed {seed}")
    }

    /// Takes a command for one of its copies; [`Child::flush`] sends it.
    pub fn take(&mut self, env: EnvIndex, command: Command, host: &mut Host) {
        let local = env.0 - self.envs.start;
        match self.accept(local, &command, host) {
            Ok(()) => self.held.push((local, command)),
            Err(err) => {
                let answer = Answer::refuse(&command, err);
                host.answers.push((env, answer));
            }
        }
    }

    fn accept(&mut self, local: usize, command: &Command, host: &Host) -> Result<(), EnvError> {
        let copy = &mut self.copies[local];
        let lost = copy.lost.take();
        let Command::Step { action, .. } = command else {
            return Ok(());
        };
        if let Some(lost) = lost {
            return Err(lost);
        }
        let hello = host.hello.as_ref();
        let names = hello.map_or(&[][..], |hello| &hello.interface.action.names);
        let clips = host.settings.given.clip_actions;
        let is_wrong = |number: f32| number.is_nan() || (number.is_infinite() && !clips);
        let mut numbers = action.iter().zip(names);
        let reason = match numbers.find(|(number, _)| is_wrong(**number)) {
            _ if copy.episode.is_none() => "it has no episode".to_owned(),
            _ if action.len() != names.len() => {
                let (found, wanted) = (action.len(), names.len());
                format!("the action has {found} numbers, expected {wanted}")
            }
            Some((number, name)) => format!("the action `{name}` is {number}"),
            None => return Ok(()),
        };
        let env = copy.env;
        Err(EnvError::Episode { env, reason })
    }

    /// Sends the commands that can be sent.
    pub fn flush(&mut self, host: &mut Host) {
        if self.held.is_empty() {
            return;
        }
        let is_worn = self.is_worn(host);
        match &mut self.worker {
            None if !self.awaits_server => self.start(host),
            Some(worker) if worker.is_up() && is_worn => worker.close(),
            Some(worker) if worker.is_up() => self.send(host),
            _ => {}
        }
    }

    /// Returns whether the process has run its number of episodes, and no copy is in the middle of
    /// another.
    fn is_worn(&self, host: &Host) -> bool {
        let begins = |local| {
            let is_reset = |command: &Command| matches!(command, Command::Reset { .. });
            let mut held = self.held.iter();
            held.any(|(of, command)| *of == local && is_reset(command))
        };
        let is_busy = |(local, copy): (usize, &CopyState)| {
            copy.doing.is_some() || (!begins(local) && copy.is_busy())
        };
        let limit = host.recycle_after();
        limit.is_some_and(|limit| self.served >= limit)
            && !self.copies.iter().enumerate().any(is_busy)
    }

    fn send(&mut self, host: &mut Host) {
        let (Some(worker), Some(memory)) = (&mut self.worker, &mut self.memory) else {
            return;
        };
        let write = |(local, command): &(usize, Command)| match command {
            Command::Step { action, .. } => memory.act(*local, action),
            Command::Reset { .. } => Ok(()),
        };
        let written = self.held.iter().try_for_each(write);
        if let Err(err) = written {
            return self.lose(&format!("cannot be given its action: {err}"), host);
        }
        let (mut locals, mut body) = (Vec::with_capacity(self.held.len()), Vec::new());
        for (local, command) in self.held.drain(..) {
            let (render, episode) = match command {
                Command::Reset {
                    seed,
                    episode,
                    render,
                } => (render, Some(EpisodeId { seed, episode })),
                Command::Step { render, .. } => (render, None),
            };
            let entry = Entry {
                local: local as u16,
                slot: (render == Render::Yes).then(|| memory.next_slot(local)),
                episode,
            };
            entry.put(&mut body);
            self.copies[local].begin(entry);
            locals.push(local);
        }
        let asked = worker.ask(locals.len() as u16, &body);
        if self.sent.is_empty() {
            worker.expect_by(Some(host.config.place.stall_timeout));
        }
        match asked {
            Ok(sequence) => {
                let asked = locals.into_iter().map(|local| (sequence, local));
                self.sent.extend(asked);
            }
            Err(_) => self.lose("does not read its commands", host),
        }
    }

    /// Forwards the next answers of the oldest unanswered request, in the order of its entries.
    fn answer(
        &mut self,
        sequence: u32,
        count: u16,
        body: &[u8],
        host: &mut Host,
    ) -> Result<(), String> {
        let replies = replies(count, body).map_err(|why| format!("sent nonsense: {why}"))?;
        if replies.is_empty() {
            return Err("answered a different request".to_owned());
        }
        for reply in replies {
            let next = self.sent.pop_front_if(|(asked, _)| *asked == sequence);
            let (Some((_, local)), Some(memory), Some(hello)) =
                (next, &mut self.memory, &host.hello)
            else {
                return Err(format!("answered work {sequence}, which it was not given"));
            };
            let copy = &mut self.copies[local];
            let Some(entry) = copy.doing.filter(|entry| entry.fits(&reply)) else {
                return Err("answered a different request".to_owned());
            };
            let bytes = memory.read(local);
            let bytes =
                bytes.map_err(|err| format!("has shared memory that cannot be read: {err}"))?;
            let told = reply.told.language.as_ref();
            let given = &host.settings.job.language_instruction;
            if let Some(language) = told.filter(|_| given.is_none()) {
                copy.language = Arc::from(language.as_str());
            }
            let seen = memory.observe(hello, &bytes, (&entry, &reply), &copy.language);
            let answer = copy.answered(&reply, seen, memory.action(&bytes), host);
            self.served += u64::from(!reply.is_step);
            host.answers.push((copy.env, answer));
        }
        Ok(())
    }
}
