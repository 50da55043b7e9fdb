//! Outcomes in the store: batches in one list, to which all ranks append.

use jobs::episode::Episode;
use jobs::job::JobIndex;
use serde::{Deserialize, Serialize};

use crate::eval::numbered_list::{ListReader, append};
use tcpstore::{Store, StoreError};

/// The list of batches.
pub const OUTCOMES: &str = "outcomes";

/// Number of outcomes in a batch, at most: some 20 KB.
pub const BATCH: usize = 1000;

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Outcome {
    /// The job.
    pub job: JobIndex,
    /// The number of the episode.
    pub episode: u64,
    /// Whether it was solved; `None` if it ended with an error.
    pub solved: Option<bool>,
}

impl Outcome {
    /// Returns how `episode` ended.
    pub fn of(episode: &Episode) -> Self {
        let is_solved = episode.success == Some(true);
        Self {
            job: episode.job_index,
            episode: episode.episode,
            solved: episode.error.is_none().then_some(is_solved),
        }
    }
}

/// An outcome as it is published: `[3,17,true]`.
type Row = (JobIndex, u64, Option<bool>);

impl From<Row> for Outcome {
    fn from((job, episode, solved): Row) -> Self {
        Self {
            job,
            episode,
            solved,
        }
    }
}

impl From<Outcome> for Row {
    fn from(outcome: Outcome) -> Self {
        (outcome.job, outcome.episode, outcome.solved)
    }
}

/// Publishes outcomes in batches, and removes those that are published.
///
/// # Errors
/// Returns an error if the store is lost; what is left is published by the next call.
pub fn publish(store: &Store, unsent: &mut Vec<Outcome>) -> Result<(), StoreError> {
    while !unsent.is_empty() {
        let sent = unsent.len().min(BATCH);
        let text = serde_json::to_vec(&unsent[..sent]).expect("an outcome has no map");
        append(store, OUTCOMES, &text)?;
        unsent.drain(..sent);
    }
    Ok(())
}

/// Calls `on` with the outcomes of all batches that are new.
///
/// # Errors
/// Returns an error if the store does not answer; what is left is read by the next call.
pub fn read(
    store: &Store,
    batches: &mut ListReader,
    mut on: impl FnMut(Outcome),
) -> Result<(), StoreError> {
    batches.read(store, |batch| {
        let outcomes: Vec<Outcome> = serde_json::from_slice(&batch).unwrap_or_default();
        outcomes.into_iter().for_each(&mut on);
    })
}
