//! Takes commands, holds them until they can be sent, and sends them.

use std::sync::Arc;
use std::time::Instant;

use crate::env::python::child::{Child, HeldCommand, SentBatch};
use crate::env::python::copy::{CopyState, RunningEpisode};
use crate::env::python::hello::Hello;
use crate::env::python::host::Host;
use crate::env::python::message::{self, CommandEntry, CommandKind};
use crate::env::{Answer, Command, EnvError, NextEpisode, Render};

impl Child {
    /// Takes a command for one of its copies; [`Child::flush`] sends it.
    pub fn take(&mut self, local: usize, command: Command, host: &mut Host) {
        if let Err(err) = self.accept(local, &command, host) {
            host.give(self.copies[local].env, Answer::refuse(&command, err));
            return;
        }
        self.held.push(HeldCommand { local, command });
    }

    fn accept(&mut self, local: usize, command: &Command, host: &Host) -> Result<(), EnvError> {
        let is_held = self.held.iter().any(|held| held.local == local);
        let copy = &mut self.copies[local];
        let episode_error = |reason: String| EnvError::Episode {
            env: copy.env,
            reason,
        };
        if copy.doing.is_some() || is_held {
            return Err(episode_error(
                "it has not answered its last command".to_owned(),
            ));
        }
        let Command::Step { action, .. } = command else {
            copy.lost = None;
            return Ok(());
        };
        if let Some(loss) = &copy.lost {
            return Err(copy.loss(loss));
        }
        if copy.episode.is_none() {
            return Err(episode_error("it has no episode".to_owned()));
        }
        let names = host
            .hello
            .as_ref()
            .map_or(&[][..], |hello| &hello.action.names);
        if action.len() != names.len() {
            return Err(episode_error(format!(
                "the action has {} numbers, expected {}",
                action.len(),
                names.len()
            )));
        }
        let clips = host.terms.settings.clip_actions;
        let is_wrong = |number: f32| number.is_nan() || (number.is_infinite() && !clips);
        match action
            .iter()
            .zip(names)
            .find(|(number, _)| is_wrong(**number))
        {
            Some((number, name)) => Err(episode_error(format!("the action `{name}` is {number}"))),
            None => Ok(()),
        }
    }

    /// Sends the commands that can be sent.
    pub fn flush(&mut self, host: &mut Host, now: Instant) {
        if self.held.is_empty() {
            return;
        }
        let is_worn = self.is_worn(host);
        match &mut self.worker {
            None if self.server.is_none() => self.start(host, now),
            Some(worker) if worker.is_up() && is_worn => worker.close(),
            Some(worker) if worker.is_up() => self.send(host),
            _ => {}
        }
    }

    /// Returns whether the process has run its number of episodes, and no copy is in the middle of
    /// another.
    fn is_worn(&self, host: &Host) -> bool {
        let busy = |(local, copy): (usize, &CopyState)| {
            let begins = self
                .held
                .iter()
                .any(|held| held.local == local && matches!(held.command, Command::Reset { .. }));
            copy.doing.is_some()
                || (!begins && copy.episode.is_some_and(|episode| !episode.is_over))
        };
        host.terms
            .recycle_after
            .is_some_and(|limit| self.served >= limit)
            && !self.copies.iter().enumerate().any(busy)
    }

    fn send(&mut self, host: &mut Host) {
        let work = std::mem::take(&mut self.held);
        let recycle_after = host.terms.recycle_after;
        let takes_offers = |hello: &Arc<Hello>| hello.takes_offers(recycle_after);
        let takes_offers = host.hello.as_ref().is_some_and(takes_offers);
        let mut entries = Vec::with_capacity(work.len());
        for held in &work {
            match self.prepare(held, takes_offers) {
                Ok(entry) => entries.push(entry),
                Err(reason) => {
                    // The entries that were prepared already wait for an answer; the others have to
                    // be held again.
                    self.held.extend(work.into_iter().skip(entries.len()));
                    return self.lose(&reason, host);
                }
            }
        }
        let Some(worker) = &mut self.worker else {
            return;
        };
        let asked = worker.ask(entries.len() as u16, &message::work(&entries));
        if self.batches.is_empty() {
            worker.expect_by(Some(host.terms.stall_timeout));
        }
        self.batches.push_back(SentBatch {
            sequence: asked.unwrap_or_default(),
            entries,
            begun: Vec::new(),
            follows: false,
        });
        if asked.is_err() {
            self.lose("does not read its commands", host);
        }
    }

    /// Writes the action of a command to shared memory and returns the entry to send.
    ///
    /// # Errors
    /// Returns the reason why the process cannot be used any more, as a clause.
    fn prepare(&mut self, held: &HeldCommand, takes_offers: bool) -> Result<CommandEntry, String> {
        let local =
            u16::try_from(held.local).map_err(|_| format!("has more than {} copies", u16::MAX))?;
        let mut entry = CommandEntry {
            local,
            op: CommandKind::Reset,
            render: false,
            episode: None,
        };
        let copy = &mut self.copies[held.local];
        match &held.command {
            &Command::Reset {
                seed,
                episode,
                render,
            } => {
                entry.render = render == Render::Yes;
                let begun = NextEpisode { seed, episode };
                entry.episode = Some(begun);
                copy.episode = Some(RunningEpisode::new(begun));
            }
            Command::Step {
                action,
                next,
                render,
            } => {
                (entry.op, entry.render) = (CommandKind::Step, *render == Render::Yes);
                entry.episode = next.filter(|_| takes_offers);
                let memory = self.memory.as_ref().ok_or("has no shared memory")?;
                memory
                    .act(held.local, action)
                    .map_err(|err| format!("cannot be given its action: {err}"))?;
                if let Some(episode) = &mut copy.episode {
                    episode.steps += 1;
                }
            }
        }
        copy.doing = Some(entry.op);
        Ok(entry)
    }
}
