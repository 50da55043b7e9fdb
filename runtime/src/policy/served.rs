//! Policies that answer the clients of a server, who describe observations with the keys of the
//! checkpoint.

use std::ops::Range;

use jobs::policies::{PolicyType, not_served};
use serde_json::{Map, Value};

use crate::policy::config::known;
use crate::policy::gr00t::{Gr00tServed, Gr00tSettings};
use crate::policy::{Checkpoints, PolicyError};
use gr00t::client::PyObject;
use gr00t::processor::{KeyActions, Modalities};

/// The properties of a policy that clients can ask for.
#[derive(Clone, Debug)]
pub struct ServedSpec {
    /// Inputs and actions of the checkpoint.
    pub modalities: Modalities,
    /// State vectors and their lengths, where the checkpoint tells them.
    pub states: Vec<(String, Option<usize>)>,
    /// Action vectors and their lengths, in order.
    pub actions: Vec<(String, usize)>,
    /// Number of steps in a chunk.
    pub horizon: usize,
    /// Shape of the noise from which a chunk starts.
    pub noise_shape: [usize; 2],
    /// Seed of the noise if clients do not choose one.
    pub seed: u64,
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

/// The noise from which the denoising of a chunk starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Noise {
    /// Noise drawn from this seed.
    Seed(u64),
    /// The given noise, of the shape [`ServedSpec::noise_shape`], row-major.
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

    /// Returns one answer per request, in order; at most `max_rows` rows go into one pass of a
    /// network. An error in one request does not affect the others.
    fn answer(
        &mut self,
        requests: &[PolicyRequest],
        max_rows: usize,
    ) -> Vec<Result<Actions, PolicyError>>;
}

/// Creates the policy of a type and a `policy_config_dict` for clients.
///
/// # Errors
/// Fails like [`crate::policy::check`], and for a policy that acts only in environments, and for a
/// checkpoint that cannot be loaded.
pub fn serve(
    policy_type: &str,
    config: &Map<String, Value>,
    checkpoints: &mut Checkpoints,
) -> Result<Box<dyn Served>, PolicyError> {
    crate::policy::check(policy_type, config)?;
    match known(policy_type)? {
        PolicyType::Gr00t => Ok(Box::new(Gr00tServed::new(
            Gr00tSettings::read(config)?,
            checkpoints,
        )?)),
        PolicyType::ZeroAction
        | PolicyType::RandomAction
        | PolicyType::ReplayAction
        | PolicyType::Scripted
        | PolicyType::Torchscript
        | PolicyType::Python
        | PolicyType::Gr00tRemote
        | PolicyType::Pi0Remote
        | PolicyType::XpolicylabRemote
        | PolicyType::VlaEvalRemote
        | PolicyType::OpenaiAgent => Err(not_served(policy_type).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gr00t::client::PyArray;

    #[test]
    fn what_is_served_is_what_the_table_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), "").unwrap();
        for policy in PolicyType::ALL.iter().copied() {
            let config = crate::policy::config::tests::required(policy, folder.path());
            let mut models = Checkpoints::new(tch::Device::Cpu);
            let Err(err) = serve(policy.name(), &config, &mut models) else {
                continue;
            };
            let is_refused = err
                .to_string()
                .contains("expected a policy that can be served");
            assert_eq!(is_refused, !policy.row().is_served, "{err}");
        }
    }

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
