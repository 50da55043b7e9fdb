//! Takes commands, holds them until they can be sent, sends them, and takes the answers.

use std::sync::Arc;

use crate::env::python::child::Child;
use crate::env::python::copy::CopyState;
use crate::env::python::host::Host;
use crate::env::python::message::{Entry, replies};
use crate::env::{Answer, Command, EnvError, EnvIndex, NextEpisode, Render};

impl Child {
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
        let written = self
            .held
            .iter()
            .try_for_each(|(local, command)| match command {
                Command::Step { action, .. } => memory.act(*local, action),
                Command::Reset { .. } => Ok(()),
            });
        if let Err(err) = written {
            return self.lose(&format!("cannot be given its action: {err}"), host);
        }
        let (mut entries, mut body) = (Vec::with_capacity(self.held.len()), Vec::new());
        for (local, command) in self.held.drain(..) {
            let (is_step, render, episode) = match command {
                Command::Reset {
                    seed,
                    episode,
                    render,
                } => (false, render, Some(NextEpisode { seed, episode })),
                Command::Step { next, render, .. } => {
                    (true, render, next.filter(|_| host.takes_offers()))
                }
            };
            let entry = Entry {
                sequence: 0,
                local: local as u16,
                is_step,
                slot: (render == Render::Yes).then(|| memory.next_slot(local)),
                episode,
                follows: false,
            };
            entry.put(&mut body);
            self.copies[local].begin(entry);
            entries.push(entry);
        }
        let asked = worker.ask(entries.len() as u16, &body);
        if self.sent.is_empty() {
            worker.expect_by(Some(host.config.stall_timeout));
        }
        for mut entry in entries {
            entry.sequence = asked.unwrap_or_default();
            self.sent.push_back(entry);
        }
        if asked.is_err() {
            self.lose("does not read its commands", host);
        }
    }

    /// Forwards the next answers of the oldest unanswered request, in the order of its entries.
    /// Those of the episodes that its copies have begun by themselves come last.
    pub(super) fn answer(
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
            let front = self.sent.front().filter(|entry| entry.sequence == sequence);
            let (Some(&entry), Some(memory), Some(hello)) = (front, &mut self.memory, &host.hello)
            else {
                return Err(format!("answered work {sequence}, which it was not given"));
            };
            if !entry.fits(&reply) {
                return Err("answered a different request".to_owned());
            }
            self.sent.pop_front();
            let local = usize::from(entry.local);
            let bytes = memory.read(local);
            let bytes =
                bytes.map_err(|err| format!("has shared memory that cannot be read: {err}"))?;
            let copy = &mut self.copies[local];
            let told = reply.told.language.as_ref();
            if let Some(language) = told.filter(|_| host.settings.language.is_none()) {
                copy.language = Arc::from(language.as_str());
            }
            let seen = memory.observe(hello, &bytes, (&entry, &reply), &copy.language);
            let answer = copy.answered(&reply, seen, memory.action(&bytes), host);
            self.served += u64::from(!reply.is_step);
            if let Some(begun) = entry.followed_by(&reply) {
                let later = self
                    .sent
                    .iter()
                    .position(|entry| entry.sequence != sequence);
                self.sent.insert(later.unwrap_or(self.sent.len()), begun);
            }
            host.answers.push((copy.env, answer));
        }
        Ok(())
    }
}
