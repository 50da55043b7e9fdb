//! The state of one client: its episode, from which the randomness of its actions is derived.
//!
//! As in an evaluation, the noise is a function of the policy's seed, the episode's seed and the
//! number of answered inferences of the episode: an error changes the noise of nobody. A client sets the episode's seed at `reset`
//! (`options: {"seed": 7}`), or the seed of every row (`options: {"noise_seeds": [7, 8]}`, where
//! nothing is remembered), or passes the noise itself (`options: {"noise": array}`). Without any of
//! these, each connection has its own episodes.

use jobs::seed;

use crate::policy::{Chunk, RowNoise, Window};
use crate::protocols::observation::ValidatedRequest;
use crate::serve::card::ServedSpec;
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::server::ServerState;
use wire::Value;

/// One observation for which a client wants a chunk, with those of the steps before.
#[derive(Clone, Debug)]
pub struct ClientRow {
    /// The observations.
    pub window: Window,
    /// What determines its noise.
    pub of: RowOf,
}

/// What determines the noise of a row.
#[derive(Clone, Debug)]
pub enum RowOf {
    /// The client's episode.
    Episode(ClientEpisodeRow),
    /// The client's choice. For a policy that draws its noise from the seed of an episode, a seed
    /// is that of an episode of its own, of which the row is the first.
    Chosen(RowNoise),
}

/// The episode to which one row of a request belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEpisodeRow {
    /// The client.
    pub client: ConnectionId,
    /// Index of the row in the requests of the client, each of which acts in episodes of its own.
    pub row: usize,
    /// Number of the client's episode, from 0.
    pub number: u64,
    /// Seed of the row's episode.
    pub seed: u64,
    /// Number of requests in the episode before this one that were answered.
    pub inference: u64,
}

/// The current episode of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientEpisode {
    client: ConnectionId,
    /// Number of episodes so far.
    number: u64,
    /// Seed that the client chose.
    seed: Option<u64>,
    /// Number of requests in the episode that were answered.
    answered: u64,
}

impl ClientEpisode {
    /// Creates the first episode of a client.
    pub fn new(client: ConnectionId) -> Self {
        Self {
            client,
            number: 0,
            seed: None,
            answered: 0,
        }
    }

    /// Starts another episode, with a seed if the client chose one.
    pub fn reset(&mut self, seed: Option<u64>) {
        *self = Self {
            client: self.client,
            number: self.number + 1,
            seed,
            answered: 0,
        };
    }

    /// Asks the policy for the chunks of the next inference.
    ///
    /// # Errors
    /// Returns the reason if there are no actions; the inference then has the same noise when it
    /// is asked for again.
    pub async fn ask(
        &mut self,
        server: &ServerState,
        asked: ValidatedRequest,
    ) -> Result<Vec<Chunk>, RequestError> {
        let chose_noise = asked.noise.is_some();
        let of = match asked.noise {
            Some(chosen) => chosen.into_iter().map(RowOf::Chosen).collect(),
            None => self.rows(asked.rows.len(), &server.card),
        };
        let rows = asked.rows.into_iter().zip(of);
        let rows = rows.map(|(window, of)| ClientRow { window, of });
        let chunks = server.ask(self.client, rows.collect()).await?;
        self.answered += u64::from(!chose_noise);
        Ok(chunks)
    }

    /// Returns the episodes of `rows` rows for which the client chose no noise.
    fn rows(&self, rows: usize, card: &ServedSpec) -> Vec<RowOf> {
        let episode = self
            .seed
            .unwrap_or_else(|| seed::noise(card.seed, self.client.0, self.number));
        let row = |row: usize| {
            RowOf::Episode(ClientEpisodeRow {
                client: self.client,
                row,
                number: self.number,
                seed: episode.wrapping_add(row as u64),
                inference: self.answered,
            })
        };
        (0..rows).map(row).collect()
    }
}

/// Returns the seed of the episode that a request starts, if it starts one: `reset` is true, or a
/// map that may have a `seed`.
///
/// # Errors
/// Returns an error for any other value, and for a seed that is not a non-negative integer.
pub fn chosen_reset(reset: Option<&Value>) -> Result<Option<Option<u64>>, RequestError> {
    match reset {
        None | Some(Value::Nil | Value::Bool(false)) => Ok(None),
        Some(Value::Bool(true)) => Ok(Some(None)),
        Some(options @ Value::Map(_)) => chosen_seed(Some(options)).map(Some),
        Some(_) => {
            let text =
                "'reset' must be true, false or {'seed': a whole number that is not negative}";
            Err(RequestError::new(text))
        }
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
    let wrong = || RequestError::new("options 'seed' must be a whole number that is not negative");
    option(options, "seed")
        .map(|seed| seed.as_u64().ok_or_else(wrong))
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
) -> Result<Option<Vec<RowNoise>>, RequestError> {
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
    let seeds = seeds.ok_or_else(|| {
        format!("options 'noise_seeds' must be a list of {rows} whole numbers, one a row")
    })?;
    Ok(Some(seeds.into_iter().map(RowNoise::Seed).collect()))
}

fn given(noise: &Value, rows: usize, card: &ServedSpec) -> Result<Vec<RowNoise>, RequestError> {
    let [steps, width] = card.noise_shape.ok_or_else(|| {
        let policy = card.policy;
        format!(
            "options 'noise': policy {policy} has no noise to choose; `reset` with a 'seed' \
             determines its actions"
        )
    })?;
    let array = noise
        .as_array()
        .filter(|array| array.shape() == [rows, steps, width]);
    let array = array.ok_or_else(|| {
        format!("options 'noise' must be a numpy array of shape ({rows}, {steps}, {width})")
    })?;
    let numbers = array.to_f32();
    Ok(numbers
        .chunks(steps * width)
        .map(|row| RowNoise::Given(row.to_vec()))
        .collect())
}
