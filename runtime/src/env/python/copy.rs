//! What this side knows of one copy: its episode, its command, and whether it was lost.

use std::sync::Arc;

use super::host::Terms;
use super::message::Op;
use crate::env::{EnvError, EnvIndex};

/// One copy of an environment.
#[derive(Debug)]
pub struct CopyState {
    /// Its number in the whole environment.
    pub env: EnvIndex,
    /// The command that it is at.
    pub doing: Option<Op>,
    /// Its episode, from the reset until the next one.
    pub episode: Option<Under>,
    /// Its episode was lost with the process, and it does not know yet.
    pub lost: Option<Loss>,
    /// The task in words.
    pub language: Arc<str>,
}

/// An episode under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Under {
    /// Its number.
    pub episode: u64,
    /// Its seed.
    pub seed: u64,
    /// Steps that were commanded.
    pub steps: u64,
    /// It has ended; nobody has to wait for its next step.
    pub is_over: bool,
    /// It was stepped without an action.
    pub is_spoilt: bool,
}

/// Why a process is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// What happened, and where.
    pub reason: String,
    /// Its last lines.
    pub stderr: Vec<String>,
}

impl CopyState {
    /// A copy that has done nothing yet.
    pub fn new(env: EnvIndex) -> Self {
        Self { env, doing: None, episode: None, lost: None, language: Arc::from("") }
    }

    /// It has another process now, which knows of no episode.
    pub fn renew(&mut self) {
        *self = Self { lost: self.lost.take(), language: Arc::clone(&self.language), ..Self::new(self.env) };
    }

    /// Whether others that step with it have to wait for its action.
    pub fn is_midway(&self) -> bool {
        self.episode.is_some_and(|episode| episode.steps > 0 && !episode.is_over)
    }

    /// What the environment gave is wrong: this episode is over, and its process lives on for the next.
    pub fn fault(&mut self, reason: &str, terms: &Terms) -> EnvError {
        let (rank, job) = (terms.rank, &terms.job);
        let when = self.episode.take().map_or_else(String::new, |Under { episode, seed, steps, .. }| match steps {
            0 => format!("at the reset of episode {episode}, seed {seed}; "),
            steps => format!("at step {steps} of episode {episode}, seed {seed}; "),
        });
        let reason = format!("the simulator gave {reason}; {when}rank {rank}, job `{job}`");
        EnvError::Episode { env: self.env, reason }
    }

    /// As the loop is told.
    pub fn loss(&self, loss: &Loss) -> EnvError {
        EnvError::Lost { env: self.env, reason: loss.reason.clone(), stderr: loss.stderr.clone() }
    }
}
