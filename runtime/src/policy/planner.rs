//! Policies that plan elsewhere for seconds, for one environment at a time.
//!
//! The loop gives each environment of such a policy a turn of its own, asks without waiting for the
//! others, and reports how episodes end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::env::{EnvIndex, Observation};
use crate::policy::{PolicyError, PolicyRow, RowAnswer};

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

/// The additional methods of a policy that plans elsewhere, beside [`crate::policy::Policy`].
pub trait Planner {
    /// Sets the folder for files about episodes; without it no files are written.
    fn keep_in(&mut self, folder: PathBuf);

    /// As [`crate::policy::Policy::act`], but returns at once and passes the answer to `give` when
    /// it is available.
    fn act_later(&mut self, rows: Vec<PolicyRow>, give: GiveAnswers);

    /// Ends an episode; returns its metrics for the journal, by name.
    ///
    /// # Errors
    /// Returns an error if the files of the episode cannot be written.
    fn end(&mut self, over: &Over) -> Result<BTreeMap<String, f64>, PolicyError>;
}
