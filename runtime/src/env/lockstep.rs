//! A synchronous wrapper of an environment for tools and tests: each call waits for its answers.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, channel};

use crate::env::{
    Answer, Answers, Command, EnvError, EnvIndex, EnvSpec, Observation, Render, Step, VectorEnv,
};

/// A [`VectorEnv`] with the channel of its answers.
pub struct Lockstep<E> {
    env: E,
    answers: Receiver<(EnvIndex, Answer)>,
}

impl<E: VectorEnv> Lockstep<E> {
    /// Creates the environment with its own channel for answers.
    ///
    /// # Errors
    /// Returns the error of `make`.
    pub fn new(make: impl FnOnce(Answers) -> Result<E, EnvError>) -> Result<Self, EnvError> {
        let (sender, answers) = channel();
        // The receiver is gone after this value was dropped.
        let env = make(Answers::new(move |env, answer| {
            drop(sender.send((env, answer)))
        }))?;
        Ok(Self { env, answers })
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
        let mut found: BTreeMap<_, _> = self.answers.iter().take(order.len()).collect();
        let unanswered = || Err(EnvError::Setup("a command was not answered".to_owned()));
        order
            .into_iter()
            .map(|env| found.remove(&env).map_or_else(unanswered, &unpack))
            .collect()
    }
}
