//! A synchronous wrapper of an environment for tools and tests: each call waits for its answers.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::Instant;

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
        let command = |&(env, seed): &(EnvIndex, u64)| {
            (
                env,
                Command::Reset {
                    seed,
                    episode: seed,
                    render,
                },
            )
        };
        self.send(
            resets.iter().map(command).collect(),
            |answer| match answer {
                Answer::Reset(result) => result,
                Answer::Step(_) | Answer::Last { .. } => {
                    Err(EnvError::Setup("a reset was answered by a step".to_owned()))
                }
            },
        )
    }

    /// Steps each given copy. Returns one result per entry, in order.
    pub fn step(
        &mut self,
        actions: &[(EnvIndex, Vec<f32>)],
        render: Render,
    ) -> Vec<Result<Step, EnvError>> {
        let command = |(env, action): &(EnvIndex, Vec<f32>)| {
            (
                *env,
                Command::Step {
                    action: action.clone(),
                    next: None,
                    render,
                },
            )
        };
        self.send(
            actions.iter().map(command).collect(),
            |answer| match answer {
                Answer::Step(result) | Answer::Last { step: result, .. } => result,
                Answer::Reset(_) => {
                    Err(EnvError::Setup("a step was answered by a reset".to_owned()))
                }
            },
        )
    }

    fn send<R>(
        &mut self,
        work: Vec<(EnvIndex, Command)>,
        unpack: impl Fn(Answer) -> Result<R, EnvError>,
    ) -> Vec<Result<R, EnvError>> {
        let order: Vec<_> = work.iter().map(|(env, _)| *env).collect();
        self.env.send(work);
        let mut found = BTreeMap::new();
        while found.len() < order.len() {
            wait(self.env.ready(), self.env.due());
            found.extend(self.env.take());
        }
        let unanswered = || Err(EnvError::Setup("a command was not answered".to_owned()));
        order
            .into_iter()
            .map(|env| found.remove(&env).map_or_else(unanswered, &unpack))
            .collect()
    }
}

/// Waits until a descriptor is readable, or until a time.
fn wait(ready: BorrowedFd<'_>, until: Option<Instant>) {
    let left = until.map(|until| timespec(until.saturating_duration_since(now())));
    // An interrupted wait counts as one without events.
    poll(
        &mut [PollFd::from_borrowed_fd(ready, PollFlags::IN)],
        left.as_ref(),
    )
    .ok();
}
