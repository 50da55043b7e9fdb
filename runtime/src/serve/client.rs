//! The state of one client: its episode, from which the noise of its actions is derived.
//!
//! As in an evaluation, the noise is a function of the policy's seed, the episode's seed and the
//! number of the inference within the episode. A client sets the episode's seed at `reset`
//! (`options: {"seed": 7}`), or the seed of every row (`options: {"noise_seeds": [7, 8]}`, where
//! nothing is remembered), or passes the noise itself (`options: {"noise": array}`). Without any of
//! these, each connection has its own episodes.

use jobs::seed;

use crate::policy::served::{Noise, ServedSpec};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use wire::Value;

/// The current episode of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEpisode {
    client: ConnectionId,
    /// Number of episodes so far.
    number: u64,
    /// Seed that the client chose.
    seed: Option<u64>,
    inferences: u64,
}

impl ClientEpisode {
    /// Creates the first episode of a client.
    pub fn new(client: ConnectionId) -> Self {
        Self {
            client,
            number: 0,
            seed: None,
            inferences: 0,
        }
    }

    /// Starts another episode, with a seed if the client chose one.
    pub fn reset(&mut self, seed: Option<u64>) {
        *self = Self {
            client: self.client,
            number: self.number + 1,
            seed,
            inferences: 0,
        };
    }

    /// Returns the noise of `rows` rows for which the client chose none.
    pub fn noise(&mut self, rows: usize, card: &ServedSpec) -> Vec<Noise> {
        let episode = self
            .seed
            .unwrap_or_else(|| seed::noise(card.seed, self.client.0, self.number));
        let seed =
            |row: usize| seed::noise(card.seed, episode.wrapping_add(row as u64), self.inferences);
        let noise = (0..rows).map(|row| Noise::Seed(seed(row))).collect();
        self.inferences += 1;
        noise
    }
}

fn option<'a>(options: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    options
        .and_then(|options| options.get(name))
        .filter(|value| **value != Value::Nil)
}

/// Returns the seed in the `options` of a reset, if there is one.
///
/// # Errors
/// Returns an error if the seed is not a non-negative integer.
pub fn chosen_seed(options: Option<&Value>) -> Result<Option<u64>, RequestError> {
    option(options, "seed")
        .map(|seed| seed.as_u64().ok_or(RequestError::Seed))
        .transpose()
}

/// Returns the noise that the `options` of a request with `rows` rows choose, if any.
///
/// # Errors
/// Returns an error if an option has a wrong type or length.
pub fn chosen_noise(
    rows: usize,
    options: Option<&Value>,
    card: &ServedSpec,
) -> Result<Option<Vec<Noise>>, RequestError> {
    if let Some(noise) = option(options, "noise") {
        return given(noise, rows, card).map(Some);
    }
    let Some(seeds) = option(options, "noise_seeds") else {
        return Ok(None);
    };
    let seeds: Option<Vec<u64>> = seeds
        .as_list()
        .and_then(|seeds| seeds.iter().map(Value::as_u64).collect());
    let seeds = seeds.filter(|seeds| seeds.len() == rows);
    let wrong = RequestError::NoiseSeeds { rows };
    Ok(Some(
        seeds.ok_or(wrong)?.into_iter().map(Noise::Seed).collect(),
    ))
}

fn given(noise: &Value, rows: usize, card: &ServedSpec) -> Result<Vec<Noise>, RequestError> {
    let [steps, width] = card.noise_shape;
    let array = noise
        .as_array()
        .filter(|array| array.shape() == [rows, steps, width]);
    let wrong = RequestError::Noise { rows, steps, width };
    let numbers = array.ok_or(wrong)?.to_f32();
    Ok(numbers
        .chunks(steps * width)
        .map(|row| Noise::Given(row.to_vec()))
        .collect())
}
