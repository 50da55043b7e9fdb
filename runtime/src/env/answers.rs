//! What passes between the loop and the copies of an environment.

use std::sync::Arc;

use crate::env::{EnvError, EnvIndex, Observation, Step};

/// Work for one copy.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Begin an episode.
    Reset {
        /// All that is random in it comes from this.
        seed: u64,
        /// Its number in the job, for simulators with a list of initial states.
        episode: u64,
    },
    /// Go on by one step.
    Step {
        /// `[action.names.len()]`, clamped to its range.
        action: Vec<f32>,
    },
}

/// What became of a command.
#[derive(Debug)]
pub enum Answer {
    /// The first observation of an episode.
    Reset(Result<Observation, EnvError>),
    /// What a step led to.
    Step(Result<Step, EnvError>),
}

impl Answer {
    /// The answer to a command that could not be obeyed.
    pub fn refuse(command: &Command, err: EnvError) -> Self {
        match command {
            Command::Reset { .. } => Self::Reset(Err(err)),
            Command::Step { .. } => Self::Step(Err(err)),
        }
    }
}

/// Takes an answer.
type Taker = dyn Fn(EnvIndex, Answer) + Send + Sync;

/// Where answers go: a channel's end that can be shared by any number of threads.
#[derive(Clone)]
pub struct Answers(Arc<Taker>);

impl Answers {
    /// Answers go to `take`, which must not block.
    pub fn new(take: impl Fn(EnvIndex, Answer) + Send + Sync + 'static) -> Self {
        Self(Arc::new(take))
    }

    /// Answers for a copy.
    pub fn give(&self, env: EnvIndex, answer: Answer) {
        (self.0)(env, answer);
    }
}
