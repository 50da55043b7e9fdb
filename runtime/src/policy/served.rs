//! Policies that answer clients, who say what they see in the words of the checkpoint.

use std::ops::Range;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::fields::argument;
use crate::policy::gr00t::processor::{Modalities, Object};
use crate::policy::gr00t::{Gr00tServed, Models, Settings};

/// What clients may know before they ask.
#[derive(Clone, Debug)]
pub struct Card {
    /// What it looks at and does.
    pub modalities: Modalities,
    /// State vectors and their lengths, where the checkpoint says them.
    pub states: Vec<(String, Option<usize>)>,
    /// Action vectors and their lengths, in order.
    pub actions: Vec<(String, usize)>,
    /// Steps of a chunk.
    pub horizon: usize,
    /// Shape of the noise that a chunk starts from.
    pub noise_shape: [usize; 2],
    /// Seed of the noise that clients do not choose.
    pub seed: u64,
    /// What it says of itself.
    pub facts: Vec<(&'static str, Value)>,
}

/// Observations of one request, which have been validated, and where their actions start.
#[derive(Clone, Debug)]
pub struct Question {
    /// `{"video": {…}, "state": {…}, "language": {…}}`.
    pub observation: Object,
    /// One a row.
    pub noise: Vec<Noise>,
}

impl Question {
    /// Some rows of it, over the same pictures. The observation has to have been validated.
    #[must_use]
    pub fn part(&self, rows: Range<usize>) -> Self {
        let end = rows.end.min(self.noise.len());
        let noise = self.noise[rows.start.min(end)..end].to_vec();
        Self { observation: part(&self.observation, &rows), noise }
    }
}

/// The rows of what has rows: arrays and lists in two layers of maps.
fn part(value: &Object, rows: &Range<usize>) -> Object {
    match value {
        Object::Map(members) => {
            Object::Map(members.iter().map(|(key, value)| (key.clone(), part(value, rows))).collect())
        }
        Object::Array(array) => Object::Array(array.part(rows.clone())),
        Object::List(items) => {
            let end = rows.end.min(items.len());
            Object::List(items[rows.start.min(end)..end].to_vec())
        }
        other => other.clone(),
    }
}

/// Where the denoising of a chunk starts.
#[derive(Clone, Debug, PartialEq)]
pub enum Noise {
    /// Drawn from this seed.
    Seed(u64),
    /// [`Card::noise_shape`], row-major.
    Given(Vec<f32>),
}

/// Actions of one request by key: `[rows, horizon, width]`, row-major, physical units.
#[derive(Clone, Debug, PartialEq)]
pub struct Actions {
    /// Rows of the request.
    pub rows: usize,
    /// Steps of a chunk.
    pub horizon: usize,
    /// Key, width and numbers, in the order of the checkpoint.
    pub keys: Vec<(String, usize, Vec<f32>)>,
}

impl Actions {
    /// Adds rows behind those that are there; those of the first part decide about keys and steps.
    pub fn append(&mut self, more: Self) {
        self.rows += more.rows;
        self.keys.iter_mut().zip(more.keys).for_each(|((.., all), (.., values))| all.extend(values));
    }
}

/// A policy that answers clients.
pub trait Served {
    /// What does not change.
    fn card(&self) -> Card;

    /// One answer a question, in order; at most `max_rows` rows go into one pass of a network. What is wrong with one
    /// question is no other's concern.
    fn answer(&mut self, questions: &[Question], max_rows: usize) -> Vec<Result<Actions, PolicyError>>;
}

/// Makes the policy of a type and a `policy_config_dict` for clients.
///
/// # Errors
/// As [`crate::policy::check`], for a policy that acts in environments only, and for a checkpoint that cannot be loaded.
pub fn serve(
    policy_type: &str,
    config: &Map<String, Value>,
    models: &mut Models,
) -> Result<Box<dyn Served>, PolicyError> {
    crate::policy::check(policy_type, config)?;
    match jobs::known::canonical_policy(policy_type) {
        "gr00t" => Ok(Box::new(Gr00tServed::new(Settings::read(config)?, models)?)),
        _ => {
            let wanted = "a policy that says what it looks at is needed to be served: gr00t";
            Err(argument("policy_type", &format!("`{policy_type}`"), wanted))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::gr00t::processor::Array;

    #[test]
    fn a_part_of_a_question_has_its_rows_and_no_others() {
        let array = Array::new("uint8", 1, &[3, 1], vec![7, 8, 9].into()).unwrap();
        let text = |text: &str| Object::List(vec![Object::Text(text.to_owned())]);
        let map = |name: &str, value: Object| Object::Map(vec![(name.to_owned(), value)]);
        let texts = Object::List(vec![text("a"), text("b"), text("c")]);
        let observation = Object::Map(vec![
            ("video".to_owned(), map("view", Object::Array(array.clone()))),
            ("language".to_owned(), map("task", texts)),
        ]);
        let noise = (0..3).map(Noise::Seed).collect();
        let part = Question { observation, noise }.part(1..3);
        assert_eq!(part.noise, [Noise::Seed(1), Noise::Seed(2)]);
        assert_eq!(part.observation.get("video").unwrap().get("view"), Some(&Object::Array(array.part(1..3))));
        let texts = Object::List(vec![text("b"), text("c")]);
        assert_eq!(part.observation.get("language").unwrap().get("task"), Some(&texts));
    }
}
