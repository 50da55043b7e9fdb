//! Commands to the copies of an environment, and their answers.

use std::sync::Arc;

use crate::env::{EnvError, EnvIndex, Observation, Step};

/// A command to one copy of an environment.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Starts an episode.
    Reset {
        /// Seed of all randomness in the episode.
        seed: u64,
        /// Number of the episode in the job, for simulators with a list of initial states.
        episode: u64,
    },
    /// Takes one step.
    Step {
        /// The action, `[action.names.len()]`, clamped to its range.
        action: Vec<f32>,
    },
}

/// The answer to a command.
#[derive(Debug)]
pub enum Answer {
    /// The first observation of an episode.
    Reset(Result<Observation, EnvError>),
    /// The result of a step.
    Step(Result<Step, EnvError>),
}

impl Answer {
    /// Returns the answer to a command that failed with `err`.
    pub fn refuse(command: &Command, err: EnvError) -> Self {
        match command {
            Command::Reset { .. } => Self::Reset(Err(err)),
            Command::Step { .. } => Self::Step(Err(err)),
        }
    }
}

/// A callback that receives the answers.
type Taker = dyn Fn(EnvIndex, Answer) + Send + Sync;

/// Destination of the answers: a cloneable callback that any number of threads can share.
#[derive(Clone)]
pub struct Answers(Arc<Taker>);

impl Answers {
    /// Creates a destination that calls `take` for each answer; `take` must not block.
    pub fn new(take: impl Fn(EnvIndex, Answer) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Sends the answer of one copy.
    pub fn give(&self, env: EnvIndex, answer: Answer) {
        (self.0)(env, answer);
    }
}
