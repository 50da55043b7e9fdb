//! Policies that think for seconds, elsewhere, and about one environment at a time.
//!
//! The loop gives each environment of such a policy a turn of its own, asks without waiting for the others, and tells it
//! how episodes end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::env::{EnvIndex, Observation};
use crate::policy::{Chunk, PolicyError};

/// Takes the answer to a question, from any thread, once.
pub type Give = Box<dyn FnOnce(Result<Vec<Chunk>, PolicyError>) + Send>;

/// How an episode ended.
#[derive(Clone, Debug)]
pub struct Over {
    /// Where it ran.
    pub env: EnvIndex,
    /// The task was solved.
    pub success: bool,
    /// Steps of the environment.
    pub length: u64,
    /// Sum of rewards.
    pub return_: f64,
    /// What was seen after the last step.
    pub observation: Arc<Observation>,
}

/// What a policy says about an episode that is over.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// For the journal, by name.
    pub metrics: BTreeMap<String, f64>,
    /// What the user should know, each said once.
    pub notes: Vec<String>,
}

/// What a policy of this kind does beside [`crate::policy::Policy`].
pub trait Planner {
    /// Where it may keep files about episodes; without it there are none.
    fn keep_in(&mut self, folder: PathBuf);

    /// As [`crate::policy::Policy::act`], but returns at once and gives the answer when it is there.
    fn act_later(&mut self, rows: Vec<(EnvIndex, Arc<Observation>)>, give: Give);

    /// An episode is over.
    ///
    /// # Errors
    /// When what is to be kept of it cannot be written.
    fn end(&mut self, over: &Over) -> Result<Account, PolicyError>;
}
