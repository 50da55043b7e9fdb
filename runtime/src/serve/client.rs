//! What is remembered of one client: where its noise comes from.
//!
//! An episode's noise is a function of the policy's seed, the episode's seed and the number of the inference in it, as
//! in an evaluation. A client says the episode's seed at `reset` (`options: {"seed": 7}`), or that of every row itself
//! (`options: {"noise_seeds": [7, 8]}`, nothing is remembered then), or gives the noise (`options: {"noise": array}`).
//! Without any of them each connection has episodes of its own.

use jobs::seed;

use crate::policy::served::{Card, Noise};
use crate::serve::batcher::ClientId;
use wire::Value;

/// One client's episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Episode {
    client: ClientId,
    /// Episodes so far.
    number: u64,
    /// Chosen by the client.
    seed: Option<u64>,
    inferences: u64,
}

impl Episode {
    /// The first one.
    pub fn new(client: ClientId) -> Self {
        Self { client, number: 0, seed: None, inferences: 0 }
    }

    /// Another one, with the seed that a client may choose.
    pub fn reset(&mut self, seed: Option<u64>) {
        *self = Self { client: self.client, number: self.number + 1, seed, inferences: 0 };
    }

    /// The noise of `rows` rows that chose none.
    pub fn noise(&mut self, rows: usize, card: &Card) -> Vec<Noise> {
        let episode = self.seed.unwrap_or_else(|| seed::noise(card.seed, self.client.0, self.number));
        let seed = |row: usize| seed::noise(card.seed, episode.wrapping_add(row as u64), self.inferences);
        let noise = (0..rows).map(|row| Noise::Seed(seed(row))).collect();
        self.inferences += 1;
        noise
    }
}

fn option<'a>(options: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    options.and_then(|options| options.get(name)).filter(|value| **value != Value::Nil)
}

/// The seed that the `options` of a reset may have.
///
/// # Errors
/// A seed that is no whole number.
pub fn chosen_seed(options: Option<&Value>) -> Result<Option<u64>, String> {
    let wrong = || "options 'seed' must be a whole number that is not negative".to_owned();
    option(options, "seed").map(|seed| seed.as_u64().ok_or_else(wrong)).transpose()
}

/// The noise that the `options` of a request with `rows` rows may choose.
///
/// # Errors
/// Options of a wrong type or number.
pub fn chosen_noise(rows: usize, options: Option<&Value>, card: &Card) -> Result<Option<Vec<Noise>>, String> {
    if let Some(noise) = option(options, "noise") {
        return given(noise, rows, card).map(Some);
    }
    let Some(seeds) = option(options, "noise_seeds") else { return Ok(None) };
    let seeds: Option<Vec<u64>> = seeds.as_list().and_then(|seeds| seeds.iter().map(Value::as_u64).collect());
    let seeds = seeds.filter(|seeds| seeds.len() == rows);
    let wrong = || format!("options 'noise_seeds' must be a list of {rows} whole numbers, one a row");
    Ok(Some(seeds.ok_or_else(wrong)?.into_iter().map(Noise::Seed).collect()))
}

fn given(noise: &Value, rows: usize, card: &Card) -> Result<Vec<Noise>, String> {
    let [steps, width] = card.noise_shape;
    let array = noise.as_array().filter(|array| array.shape() == [rows, steps, width]);
    let wrong = || format!("options 'noise' must be a numpy array of shape ({rows}, {steps}, {width})");
    let numbers = array.ok_or_else(wrong)?.to_f32();
    Ok(numbers.chunks(steps * width).map(|row| Noise::Given(row.to_vec())).collect())
}
