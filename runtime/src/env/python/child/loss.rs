//! Handles processes that are silent or gone.

use std::time::Instant;

use crate::clock::now;
use crate::env::python::child::{Child, HeldCommand};
use crate::env::python::copy::{Culprit, ProcessLoss, RunningEpisode};
use crate::env::python::host::Host;
use crate::env::python::message::CommandKind;
use crate::env::python::observation::{CallNow, ProcessMemory};
use crate::env::{Answer, Command, EnvError};
use crate::python::Worker;

/// How the stages begin in which a start tries a reset, in `rrun_worker.py`.
const PROBE_RESET: &str = "reset(seed=";
/// The first of them.
const PROBE: &str = "reset(seed=0)";

impl Child {
    /// Returns the time at which [`Child::expire`] has to be called.
    pub fn deadline(&self, host: &Host) -> Option<Instant> {
        let server = self.server.as_ref().map(|stage| stage.since);
        let worker = self.worker.as_ref().and_then(Worker::due);
        worker.or(server.map(|since| since + host.terms.stall_timeout))
    }

    /// Gives up on whatever has exceeded its time limit.
    pub fn expire(&mut self, host: &mut Host, now: Instant) {
        if self.deadline(host).is_none_or(|deadline| now < deadline) {
            return;
        }
        match &mut self.worker {
            Some(worker) => {
                if let Err(loss) = worker.expire(now) {
                    self.lose(&loss.text, host);
                }
            }
            None => {
                let seconds = host.terms.stall_timeout.as_secs_f64();
                self.lose(&format!("gave no answer for {seconds} s"), host);
            }
        }
    }

    /// Gives up the process, which is gone or will be. Commands that wait for it are answered with
    /// the reason; other copies get it with their next command.
    pub fn lose(&mut self, reason: &str, host: &mut Host) {
        if self.starts_over(reason, host) {
            return;
        }
        let starting = self.memory.is_none();
        let doing = self.doing();
        let (rank, job) = (host.terms.rank, &host.terms.job);
        let mut loss = ProcessLoss {
            culprit: match starting {
                true => Culprit::Start,
                false => self.culprit(host),
            },
            reason: format!("the simulator {reason}; {doing}; rank {rank}, job `{job}`"),
            stderr: Vec::new(),
        };
        if let Some(mut worker) = self.worker.take() {
            let last = worker.loss(reason);
            loss.reason += &format!(", process {}", last.pid);
            loss.stderr = last.lines;
            host.bury(self.id, worker);
        } else if let Some(server) = host.importing() {
            loss.reason += &format!(", process {}", server.pid());
            loss.stderr = server.lines();
        }
        if starting {
            host.failure
                .get_or_insert_with(|| EnvError::Setup(with_lines(&loss)));
        }
        (self.server, self.memory) = (None, None);
        self.batches.clear();
        for copy in &mut self.copies {
            match copy.doing.take() {
                Some(CommandKind::Reset) => {
                    host.give(copy.env, Answer::Reset(Err(copy.loss(&loss))));
                }
                Some(CommandKind::Step) => {
                    host.give(copy.env, Answer::Step(Err(copy.loss(&loss))));
                }
                None if copy.episode.is_some() => copy.lost = Some(loss.clone()),
                None => {}
            }
            copy.episode = None;
        }
        // A reset that was not sent yet goes to the next process, unless this one could not even
        // start.
        let (told, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held| starting || matches!(held.command, Command::Step { .. }));
        self.held = held;
        for HeldCommand { local, command, .. } in told {
            let copy = &mut self.copies[local];
            copy.lost = None;
            host.give(copy.env, Answer::refuse(&command, copy.loss(&loss)));
        }
    }

    /// Starts another process if this one was lost at the reset with seed 0 that every start tries. No
    /// episode has that seed, so the next one tries that of the job's first episode.
    fn starts_over(&mut self, reason: &str, host: &mut Host) -> bool {
        let probes = |worker: &Worker| worker.during() == PROBE;
        let is_at_it = self.memory.is_none() && self.worker.as_ref().is_some_and(probes);
        if !self.probes_zero || !is_at_it {
            return false;
        }
        host.probe_failure.get_or_insert_with(|| reason.to_owned());
        let worker = self.worker.take();
        worker
            .into_iter()
            .for_each(|worker| host.bury(self.id, worker));
        self.start(host, now());
        true
    }

    /// Returns the copy whose call the process was at, if a call is that of one copy.
    fn culprit(&self, host: &Host) -> Culprit {
        let mut busy = self.copies.iter().filter(|copy| copy.is_busy());
        if let (Some(only), None) = (busy.next(), busy.next()) {
            return Culprit::Copy(only.env);
        }
        if host.hello.as_ref().is_some_and(|hello| hello.together) {
            return Culprit::Unknown;
        }
        let now = self.memory.as_ref().and_then(ProcessMemory::call_now);
        let copy = now
            .filter(|now| CallNow::CALLS.contains(&now.call))
            .and_then(|now| self.copies.get(now.copy as usize));
        copy.filter(|copy| copy.doing.is_some())
            .map_or(Culprit::Unknown, |copy| Culprit::Copy(copy.env))
    }

    /// Returns a description of the last known activity of the process.
    fn doing(&self) -> String {
        if self.memory.is_none() {
            let stage = match (&self.server, &self.worker) {
                (Some(stage), _) => &stage.text,
                (None, Some(worker)) => worker.during(),
                (None, None) => "start of the interpreter",
            };
            let note = match stage.starts_with(PROBE_RESET) {
                true => ", which is tried at the start of a process and is no episode",
                false => "",
            };
            return format!("it was at `{stage}`{note}");
        }
        let now = self.memory.as_ref().and_then(ProcessMemory::call_now);
        let idle = || "it was not at work".to_owned();
        let Some(CallNow { copy, call }) = now else {
            return idle();
        };
        let Some(copy) = self.copies.get(copy as usize) else {
            return idle();
        };
        let Some(RunningEpisode {
            episode,
            seed,
            steps,
            ..
        }) = copy.episode
        else {
            return idle();
        };
        let env = copy.env.0;
        let call = match call {
            1 => "reset".to_owned(),
            2 => format!("step {steps}"),
            3 => format!("render after step {steps}"),
            4 => format!("observation after step {steps}"),
            _ => return format!("no call was under way after step {steps} of environment {env}"),
        };
        format!("its last call was `{call}` of environment {env}, episode {episode}, seed {seed}")
    }
}

/// Returns a reason with the last lines of the process's output.
fn with_lines(loss: &ProcessLoss) -> String {
    let last = loss.stderr.iter().rev().take(20).rev();
    last.fold(loss.reason.clone(), |text, line| text + "\n    " + line)
}
