//! Handles a process's description of its environment, and its answers.

use std::sync::Arc;

use crate::env::python::child::Child;
use crate::env::python::copy::{CopyState, RunningEpisode};
use crate::env::python::hello::Hello;
use crate::env::python::host::{Host, HostSettings};
use crate::env::python::layout::MemoryLayout;
use crate::env::python::message::{self, CommandEntry, CommandKind, Reply};
use crate::env::python::observation::ProcessMemory;
use crate::env::{Answer, Observation, Step};

/// A reply, and what its copy has written into shared memory.
struct ReadReply<'a> {
    local: usize,
    reply: &'a Reply,
    observation: Result<Observation, String>,
    processed_action: Vec<f32>,
    /// The reset that follows without a command.
    follows: Option<CommandEntry>,
}

impl Child {
    /// Checks the description of the environment, and maps shared memory of the size it needs.
    pub(super) fn attach(&mut self, text: &[u8], host: &mut Host) -> Result<(), String> {
        let hello = Hello::new(text).map_err(|why| format!("describes itself wrongly: {why}"))?;
        let hello = match &host.hello {
            Some(first) if !first.same(&hello) => {
                return Err(format!("shows something else than the first: {hello:?}"));
            }
            Some(first) => Arc::clone(first),
            None => Arc::clone(host.hello.insert(Arc::new(hello))),
        };
        let Some(worker) = &self.worker else {
            return Ok(());
        };
        let layout = MemoryLayout::new(&hello, self.copies.len())?;
        let shared = worker
            .memory(layout.bytes, 2 * self.copies.len())
            .map_err(|err| {
                let bytes = layout.bytes;
                format!("cannot be given {bytes} bytes of shared memory: {err}")
            })?;
        let language = host.terms.language.as_ref().unwrap_or(&hello.language);
        self.copies
            .iter_mut()
            .for_each(|copy| copy.language = Arc::from(language.as_str()));
        self.memory = Some(ProcessMemory { shared, layout });
        Ok(())
    }

    /// Forwards the next answers of the oldest unanswered batch, and after the last of them expects
    /// those of the episodes that its copies begin by themselves.
    pub(super) fn answer(
        &mut self,
        sequence: u32,
        count: u16,
        body: &[u8],
        host: &mut Host,
    ) -> Result<(), String> {
        let replies =
            message::replies(count, body).map_err(|why| format!("sent nonsense: {why}"))?;
        let front = self
            .batches
            .front_mut()
            .filter(|batch| batch.sequence == sequence);
        let (Some(batch), Some(memory), Some(hello)) = (front, &self.memory, &host.hello) else {
            return Err(format!("answered work {sequence}, which it was not given"));
        };
        let fits = |(entry, reply): (&CommandEntry, &Reply)| {
            let is_rendered = entry.render == reply.rendered || reply.told.wrong.is_some();
            (entry.local, entry.op) == (reply.local, reply.op) && is_rendered
        };
        let is_answered = !replies.is_empty() && replies.len() <= batch.entries.len();
        if !is_answered || !batch.entries.iter().zip(&replies).all(fits) {
            return Err("answered a different request".to_owned());
        }
        let mut read = Vec::with_capacity(replies.len());
        let entries: Vec<_> = batch.entries.drain(..replies.len()).collect();
        for (entry, reply) in entries.iter().zip(&replies) {
            let local = usize::from(entry.local);
            let copy = &mut self.copies[local];
            let unreadable = |err| format!("has shared memory that cannot be read: {err}");
            let bytes = memory.read(local, reply).map_err(unreadable)?;
            let mut seen = memory.observe(hello, &bytes, reply, copy, batch.follows);
            if let (Ok(observation), Some(language)) = (&mut seen, &host.terms.language) {
                copy.language = Arc::from(language.as_str());
                observation.language = Arc::clone(&copy.language);
            }
            read.push(ReadReply {
                local,
                reply,
                observation: seen,
                processed_action: memory.action(&bytes),
                follows: entry.followed_by(reply),
            });
        }
        batch
            .begun
            .extend(read.iter().filter_map(|read| read.follows));
        if batch.entries.is_empty() {
            (batch.entries, batch.follows) = (std::mem::take(&mut batch.begun), true);
        }
        if batch.entries.is_empty() {
            self.batches.pop_front();
        }
        for read in read {
            self.served += u64::from(read.reply.op == CommandKind::Reset);
            let copy = &mut self.copies[read.local];
            let answer = copy.answered(read, &host.terms);
            host.give(copy.env, answer);
        }
        Ok(())
    }
}

impl CopyState {
    /// Takes note of a reply; returns the answer for the evaluation loop.
    fn answered(&mut self, read: ReadReply, terms: &HostSettings) -> Answer {
        let ReadReply {
            reply,
            observation,
            processed_action,
            follows,
            ..
        } = read;
        self.doing = None;
        let Reply {
            out_of_bounds,
            reward,
            success,
            terminated,
            truncated,
            ..
        } = *reply;
        if let Some(episode) = &mut self.episode {
            let is_solved = success && terms.settings.end_on_success;
            episode.is_over = terminated || truncated || is_solved;
        }
        let observation = observation.map_err(|reason| self.fault(&reason, terms));
        let step = |observation| Step {
            observation,
            processed_action,
            out_of_bounds,
            reward,
            success,
            terminated,
            truncated,
        };
        match (reply.op, follows.and_then(|reset| reset.episode)) {
            (CommandKind::Reset, _) => Answer::Reset(observation),
            (CommandKind::Step, None) => Answer::Step(observation.map(step)),
            (CommandKind::Step, Some(next)) => {
                self.doing = Some(CommandKind::Reset);
                self.episode = Some(RunningEpisode::new(next));
                Answer::Last {
                    step: observation.map(step),
                    next: next.episode,
                }
            }
        }
    }
}
