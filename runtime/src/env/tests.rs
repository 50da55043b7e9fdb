//! What tests of environments share: a wrapper whose calls wait for their answers.

use std::collections::BTreeMap;

use rustix::event::{PollFd, PollFlags, poll};

use crate::clock::{now, timespec};
use crate::env::{
    Answer, Command, EnvError, EnvIndex, EnvSpec, Observation, Render, Step, VectorEnv,
};

/// A [`VectorEnv`] whose answers are waited for.
pub struct Lockstep<E> {
    env: E,
}

impl<E: VectorEnv> Lockstep<E> {
    /// Wraps an environment.
    pub fn new(env: E) -> Self {
        Self { env }
    }

    /// Returns the environment itself.
    pub fn env(&mut self) -> &mut E {
        &mut self.env
    }

    /// Returns the properties of the environment that do not change.
    pub fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }

    /// Starts an episode in each given copy, with the seed as its number. Returns one result per
    /// entry, in order.
    pub fn reset(
        &mut self,
        resets: &[(EnvIndex, u64)],
        render: Render,
    ) -> Vec<Result<Observation, EnvError>> {
        let work = resets.iter().map(|&(env, seed)| {
            let command = Command::Reset {
                seed,
                episode: seed,
                render,
            };
            (env, command)
        });
        let answers = self.call(work.collect()).into_iter();
        let first = answers.map(|answer| match answer {
            Answer::Reset(result) => result,
            other => unreachable!("a reset was answered by {other:?}"),
        });
        first.collect()
    }

    /// Steps each given copy. Returns one result per entry, in order.
    pub fn step(
        &mut self,
        actions: &[(EnvIndex, Vec<f32>)],
        render: Render,
    ) -> Vec<Result<Step, EnvError>> {
        let work = actions.iter().map(|(env, action)| {
            let command = Command::Step {
                action: action.clone(),
                render,
            };
            (*env, command)
        });
        let answers = self.call(work.collect()).into_iter();
        let steps = answers.map(|answer| match answer {
            Answer::Step(result) => result,
            other => unreachable!("a step was answered by {other:?}"),
        });
        steps.collect()
    }

    fn call(&mut self, work: Vec<(EnvIndex, Command)>) -> Vec<Answer> {
        let order: Vec<EnvIndex> = work.iter().map(|(env, _)| *env).collect();
        self.env.send(work);
        let mut found = BTreeMap::new();
        while found.len() < order.len() {
            let due = self.env.due();
            let left = due.map(|due| timespec(due.saturating_duration_since(now())));
            let ready = self.env.ready();
            // An interrupted wait counts as one without events.
            poll(
                &mut [PollFd::from_borrowed_fd(ready, PollFlags::IN)],
                left.as_ref(),
            )
            .ok();
            found.extend(self.env.take());
        }
        order.iter().filter_map(|env| found.remove(env)).collect()
    }
}
