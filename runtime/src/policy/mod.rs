//! Policies map observations to chunks of actions.
//!
//! One [`Policy`] serves all environments of a rank. The eval loop calls [`Policy::act`] only with
//! the environments that have used up their chunk. What a policy remembers of an episode is made
//! anew with its first row ([`PerEpisode`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use models::gr00t::processor::Modalities;

use crate::env::{EnvIndex, Observation};

mod agent;
mod basic;
mod checkpoints;
mod config;
mod error;
mod exported;
pub mod gr00t;
pub mod lerobot;
pub mod python;
pub(crate) mod remote;
mod replay;
mod row;
mod runner;
mod scripted;
pub(crate) mod seen;
mod thread;

pub use basic::{RandomAction, ZeroAction};
pub use checkpoints::{Checkpoints, LoadedModel};
pub use config::{Made, check, files, make};
pub use error::{PolicyError, RowError, loss, release, using};
pub use remote::Lifeline;
pub use replay::ReplayAction;
pub use row::{
    Continuation, FailedRows, PerEpisode, PolicyRow, RowAnswer, RowNoise, Window, check_finite,
    looks_back,
};
pub use runner::Shortage;
pub use scripted::Scripted;
pub use thread::{Inferred, PolicyThread};

/// The actions for the next steps of one environment: `[horizon, action_dim]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    action_dim: usize,
    values: Vec<f32>,
}

impl Chunk {
    /// Creates a chunk of `values.len() / action_dim` steps.
    ///
    /// # Panics
    /// Panics if `values` is not a whole number of steps, at least one.
    pub fn new(action_dim: usize, values: Vec<f32>) -> Self {
        assert!(
            action_dim > 0 && !values.is_empty() && values.len().is_multiple_of(action_dim),
            "a chunk of {} values is not a whole number of actions of {action_dim}",
            values.len()
        );
        Self { action_dim, values }
    }

    /// Returns the number of components of an action.
    pub fn action_dim(&self) -> usize {
        self.action_dim
    }

    /// Returns all actions, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// Returns the number of steps.
    pub fn horizon(&self) -> usize {
        self.values.len() / self.action_dim
    }

    /// Returns the action of each step.
    pub fn actions(&self) -> impl Iterator<Item = &[f32]> {
        self.values.chunks_exact(self.action_dim)
    }

    /// Returns the action of step `index`, if the chunk is long enough.
    pub fn action(&self, index: usize) -> Option<&[f32]> {
        self.actions().nth(index)
    }
}

/// The properties of a policy, which never change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyFacts {
    /// Name of the policy, the `policy_type` of a job; [`make`] knows it.
    pub policy: &'static str,
    /// Number of steps in a chunk.
    pub horizon: usize,
    /// Number of actions of a chunk that are executed, at most the horizon; [`make`] knows it.
    pub chunk_length: usize,
    /// Whether [`Policy::act`] uses pictures; if not, steps may go unrendered.
    pub needs_video: bool,
    /// Number of past steps that [`Policy::act`] uses, 0 for most policies.
    pub looks_back: usize,
    /// Seeds from which its episodes must start, if the policy has its own (a replay does).
    pub seeds: Vec<Option<u64>>,
    /// True for a planner: it plans elsewhere for seconds, for one environment at a time, and is
    /// told how episodes end. The loop gives each environment a turn of its own, and asks by
    /// [`Policy::act_later`] without waiting for the others.
    pub is_planner: bool,
    /// Whether another process runs the inference; [`make`] knows it.
    pub is_remote: bool,
    /// Name of each number of an action; [`make`] knows it.
    pub action_names: Vec<String>,
    /// What the checkpoint says of its keys, if the policy acts for them and for no environment.
    pub own_keys: Option<ClientKeys>,
    /// What the policy reports about itself for the journal: `policy_path`, `dtype` and the like.
    pub reported: Vec<(&'static str, serde_json::Value)>,
    /// Notes for the user before the first episode, such as settings without effect.
    pub notes: Vec<String>,
}

/// The inputs and actions of a policy, as its clients know them.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientKeys {
    /// Keys and steps of all inputs and actions.
    pub modalities: Modalities,
    /// State vectors and their lengths, where the checkpoint tells them.
    pub states: Vec<(String, Option<usize>)>,
    /// Action vectors and their lengths, in order.
    pub actions: Vec<(String, usize)>,
    /// Shape of the noise from which a chunk starts; `None` if clients cannot choose it.
    pub noise_shape: Option<[usize; 2]>,
    /// Seed of the episodes for which clients do not choose one.
    pub seed: u64,
}

impl ClientKeys {
    /// Returns the name of each number of all action vectors, one after the other.
    fn action_names(&self) -> impl Iterator<Item = String> {
        let numbers = |(key, width): &(String, usize)| {
            let key = key.clone();
            (0..*width).map(move |at| format!("{key}[{at}]"))
        };
        self.actions.iter().flat_map(numbers)
    }
}

/// Receives the answers to a request, from any thread, once.
pub type GiveAnswers = Box<dyn FnOnce(Result<Vec<RowAnswer>, PolicyError>) + Send>;

/// The end of an episode.
#[derive(Clone, Debug)]
pub struct Over {
    /// Environment in which the episode ran.
    pub env: EnvIndex,
    /// Whether the task was solved.
    pub success: bool,
    /// Number of steps of the environment.
    pub length: u64,
    /// Sum of all rewards.
    pub return_: f64,
    /// Observation after the last step.
    pub observation: Arc<Observation>,
}

/// A policy, which maps observations to chunks of actions.
pub trait Policy {
    /// Returns the properties of the policy, which never change.
    fn facts(&self) -> PolicyFacts;

    /// Returns how often the policy ran out of memory, and to what batch size that led.
    fn shortage(&self) -> Shortage {
        Shortage::default()
    }

    /// Prepares for inferences of `rows` rows, with at most `max_rows` rows each, so that the
    /// one-time costs of the first inferences are paid before an episode begins.
    fn warm_up(&mut self, _rows: usize, _max_rows: usize) {}

    /// Returns one answer per row, in order; never called without rows. A row whose inference
    /// fails is [`RowAnswer::Failed`]: its episode counts as an error, not as a failure, and the
    /// other rows are answered as if it were not there.
    ///
    /// # Errors
    /// Returns the reason if the policy itself has failed, which ends the job.
    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError>;

    /// Sets the folder for files about episodes; without it no files are written. Only planners
    /// write some.
    fn keep_in(&mut self, _folder: PathBuf) {}

    /// As [`Policy::act`], but a planner returns at once and passes the answer to `give` when it is
    /// available.
    fn act_later(&mut self, rows: Vec<PolicyRow>, give: GiveAnswers) {
        give(self.act(&rows));
    }

    /// Ends an episode; returns its metrics for the journal, by name. Only planners have some.
    ///
    /// # Errors
    /// Returns an error if the files of the episode cannot be written.
    fn end(&mut self, _over: &Over) -> Result<BTreeMap<String, f64>, PolicyError> {
        Ok(BTreeMap::new())
    }
}

/// Returns an error about a field of the job.
pub(crate) fn argument(field: &str, found: &str, wanted: &str) -> PolicyError {
    jobs::policies::argument(field, found, wanted).into()
}

#[cfg(test)]
#[allow(dead_code, reason = "the tests of `gr00t` use the rest")]
#[path = "../../models/src/graphs/tests/fixtures.rs"]
mod graphs_testing;

#[cfg(test)]
pub(crate) mod tests;
