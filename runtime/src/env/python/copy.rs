//! The state of one copy: its episode, its command, and whether it was lost.

use std::sync::Arc;

use jobs::journal::Blame;

use crate::env::python::host::HostSettings;
use crate::env::python::message::CommandKind;
use crate::env::{EnvError, EnvIndex, NextEpisode};

/// One copy of an environment.
#[derive(Debug)]
pub struct CopyState {
    /// Its index in the whole environment.
    pub env: EnvIndex,
    /// The command that is being executed.
    pub doing: Option<CommandKind>,
    /// Its episode, from the reset until the next one.
    pub episode: Option<RunningEpisode>,
    /// The reason, if its episode was lost with the process and the loop was not told yet.
    pub lost: Option<ProcessLoss>,
    /// The task instruction.
    pub language: Arc<str>,
}

/// A running episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningEpisode {
    /// Number of the episode.
    pub episode: u64,
    /// Seed of the episode.
    pub seed: u64,
    /// Number of steps that were commanded.
    pub steps: u64,
    /// True if it has ended.
    pub is_over: bool,
}

impl RunningEpisode {
    /// Creates an episode without steps.
    pub fn new(NextEpisode { seed, episode }: NextEpisode) -> Self {
        Self {
            episode,
            seed,
            steps: 0,
            is_over: false,
        }
    }
}

/// Who is to blame for the loss of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// This copy, whose call was under way.
    Copy(EnvIndex),
    /// One of the copies; nobody knows which.
    Unknown,
    /// No copy: the process could not be started.
    Start,
}

/// The reason why a process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessLoss {
    /// Who is to blame.
    pub culprit: Culprit,
    /// What happened, and where.
    pub reason: String,
    /// The last lines of its output.
    pub stderr: Vec<String>,
}

impl CopyState {
    /// Creates the state of a copy that has done nothing yet.
    pub fn new(env: EnvIndex) -> Self {
        Self {
            env,
            doing: None,
            episode: None,
            lost: None,
            language: Arc::from(""),
        }
    }

    /// Resets the state for a new process, which has no episode.
    pub fn renew(&mut self) {
        *self = Self {
            lost: self.lost.take(),
            language: Arc::clone(&self.language),
            ..Self::new(self.env)
        };
    }

    /// Returns whether it has an episode that is not over, or executes a command.
    pub fn is_busy(&self) -> bool {
        self.doing.is_some() || self.episode.is_some_and(|episode| !episode.is_over)
    }

    /// Ends the episode because the environment returned an invalid value; the process goes on with
    /// the next episode.
    pub fn fault(&mut self, reason: &str, terms: &HostSettings) -> EnvError {
        let (rank, job) = (terms.rank, &terms.job);
        let when = self.episode.take().map_or_else(
            String::new,
            |RunningEpisode {
                 episode,
                 seed,
                 steps,
                 ..
             }| match steps {
                0 => format!("at the reset of episode {episode}, seed {seed}; "),
                steps => format!("at step {steps} of episode {episode}, seed {seed}; "),
            },
        );
        let reason = format!("the simulator gave {reason}; {when}rank {rank}, job `{job}`");
        EnvError::Episode {
            env: self.env,
            reason,
        }
    }

    /// Returns the error for the evaluation loop.
    pub fn loss(&self, loss: &ProcessLoss) -> EnvError {
        EnvError::Lost {
            env: self.env,
            blame: match loss.culprit {
                Culprit::Copy(env) if env == self.env => Blame::Own,
                Culprit::Copy(_) => Blame::Neighbour,
                Culprit::Unknown => Blame::Unknown,
                Culprit::Start => Blame::Start,
            },
            reason: loss.reason.clone(),
            stderr: loss.stderr.clone(),
        }
    }
}
