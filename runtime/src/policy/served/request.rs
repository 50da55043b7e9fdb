//! Requests of clients, their answers, and what a policy has to do to answer them.

use std::ops::Range;

use gr00t::client::PyObject;
use gr00t::processor::{KeyActions, Modalities};
use serde_json::Value;

use crate::policy::{InferenceError, PolicyError, check_finite};

/// The properties of a policy that clients can ask for.
#[derive(Clone, Debug)]
pub struct ServedSpec {
    /// Name of the policy, the `policy_type` of a job.
    pub policy: &'static str,
    /// Inputs and actions of the policy.
    pub modalities: Modalities,
    /// Height and width of the views; empty if any size will do.
    pub view_sizes: Vec<(String, [u32; 2])>,
    /// State vectors and their lengths, where the checkpoint tells them.
    pub states: Vec<(String, Option<usize>)>,
    /// Action vectors and their lengths, in order.
    pub actions: Vec<(String, usize)>,
    /// Name of each number of all action vectors, one after the other; empty if unknown.
    pub action_names: Vec<String>,
    /// Number of steps in a chunk.
    pub horizon: usize,
    /// Shape of the noise from which a chunk starts; `None` if clients cannot choose it.
    pub noise_shape: Option<[usize; 2]>,
    /// Seed of the episodes for which clients do not choose one.
    pub seed: u64,
    /// The instruction for clients that may leave it out.
    pub prompt: Option<String>,
    /// What the policy reports about itself.
    pub facts: Vec<(&'static str, Value)>,
}

/// The validated observations of one request, and the noise from which their actions start.
#[derive(Clone, Debug)]
pub struct PolicyRequest {
    /// The observation: `{"video": {…}, "state": {…}, "language": {…}}`.
    pub observation: PyObject,
    /// Noise of each row.
    pub noise: Vec<Noise>,
}

impl PolicyRequest {
    /// Returns some of its rows, which share the same pictures. The observation must have been
    /// validated.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        let end = rows.end.min(self.noise.len());
        let noise = self.noise[rows.start.min(end)..end].to_vec();
        Self {
            observation: part(&self.observation, &rows),
            noise,
        }
    }
}

/// Returns some rows of every array and list in two levels of maps.
fn part(value: &PyObject, rows: &Range<usize>) -> PyObject {
    match value {
        PyObject::Map(members) => PyObject::Map(
            members
                .iter()
                .map(|(key, value)| (key.clone(), part(value, rows)))
                .collect(),
        ),
        PyObject::Array(array) => PyObject::Array(array.part(rows.clone())),
        PyObject::List(items) => {
            let end = rows.end.min(items.len());
            PyObject::List(items[rows.start.min(end)..end].to_vec())
        }
        other => other.clone(),
    }
}

/// Identifies a client while it is connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// The episode to which one row of a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEpisodeRow {
    /// The client.
    pub client: ClientId,
    /// Index of the row in the requests of the client, each of which acts in episodes of its own.
    pub row: usize,
    /// Number of the client's episode, from 0.
    pub number: u64,
    /// Seed of the row's episode.
    pub seed: u64,
    /// Number of requests in the episode before this one that were answered.
    pub inference: u64,
}

/// The randomness of a row, such as the noise from which the denoising of a chunk starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Noise {
    /// That of the client's episode.
    Episode(ClientEpisodeRow),
    /// Noise drawn from this seed; for a policy that draws it from the seed of an episode, the
    /// first noise of an episode of its own.
    Seed(u64),
    /// The given noise, of the shape in [`ServedSpec::noise_shape`], row-major.
    Given(Vec<f32>),
}

/// The actions of one request by key: `[rows, horizon, width]`, row-major, physical units.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// Number of rows of the request.
    pub rows: usize,
    /// Number of steps in a chunk.
    pub horizon: usize,
    /// The actions of all rows for each key, in the order of the checkpoint.
    pub keys: Vec<KeyActions>,
}

impl Actions {
    /// Refuses actions of which a number is not finite.
    ///
    /// # Errors
    /// Returns [`InferenceError::NotFinite`] for the first one.
    pub fn check_finite(&self, card: &ServedSpec) -> Result<(), InferenceError> {
        let mut before = 0;
        for KeyActions { key, width, values } in &self.keys {
            let name = |at: usize| match card.action_names.get(before + at) {
                Some(name) => name.clone(),
                None => format!("{key}[{at}]"),
            };
            for row in values.chunks(self.horizon * width) {
                check_finite(card.policy, row, *width, name)?;
            }
            before += width;
        }
        Ok(())
    }

    /// Appends the rows of `more`; the rows that are there first determine the keys and the number
    /// of steps.
    pub fn append(&mut self, more: Self) {
        self.rows += more.rows;
        self.keys
            .iter_mut()
            .zip(more.keys)
            .for_each(|(all, more)| all.values.extend(more.values));
    }
}

/// A policy that answers the clients of a server.
pub trait Served {
    /// Returns the fixed properties of the policy.
    fn card(&self) -> ServedSpec;

    /// Returns notes for the user before the first request, such as settings without effect.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns one answer per request, in order; at most `max_rows` rows go into one pass of a
    /// network. An error in one request does not affect the others.
    ///
    /// # Errors
    /// Returns the reason if the policy itself has failed.
    fn answer(
        &mut self,
        requests: &[PolicyRequest],
        max_rows: usize,
    ) -> Result<Vec<Result<Actions, InferenceError>>, PolicyError>;

    /// Forgets a client that has disconnected.
    fn leave(&mut self, _client: ClientId) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use gr00t::client::PyArray;

    #[test]
    fn a_part_of_a_question_has_its_rows_and_no_others() {
        let array = PyArray::new("uint8", 1, &[3, 1], vec![7, 8, 9].into()).unwrap();
        let text = |text: &str| PyObject::List(vec![PyObject::Text(text.to_owned())]);
        let map = |name: &str, value: PyObject| PyObject::Map(vec![(name.to_owned(), value)]);
        let texts = PyObject::List(vec![text("a"), text("b"), text("c")]);
        let observation = PyObject::Map(vec![
            (
                "video".to_owned(),
                map("view", PyObject::Array(array.clone())),
            ),
            ("language".to_owned(), map("task", texts)),
        ]);
        let noise = (0..3).map(Noise::Seed).collect();
        let part = PolicyRequest { observation, noise }.part(1..3);
        assert_eq!(part.noise, [Noise::Seed(1), Noise::Seed(2)]);
        assert_eq!(
            part.observation.get("video").unwrap().get("view"),
            Some(&PyObject::Array(array.part(1..3)))
        );
        let texts = PyObject::List(vec![text("b"), text("c")]);
        assert_eq!(
            part.observation.get("language").unwrap().get("task"),
            Some(&texts)
        );
    }
}
