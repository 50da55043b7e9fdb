//! The state of one client: its episode, from which the randomness of its actions is derived.
//!
//! As in an evaluation, the noise is a function of the policy's seed, the episode's seed and the
//! number of answered inferences of the episode: an error changes the noise of nobody. A client
//! sets the episode's seed at `reset` (`options: {"seed": 7}`), or the seed of every row
//! (`options: {"noise_seeds": [7, 8]}`, where nothing is remembered), or passes the noise itself
//! (`options: {"noise": array}`). Without any of these, each connection has its own episodes.

use jobs::seed;

use crate::env::EnvIndex;
use crate::policy::{Chunk, PolicyRow, RowNoise, Window};
use crate::protocols::observation::ValidatedRequest;
use crate::serve::card::ServedSpec;
use crate::serve::connections::ConnectionId;
use crate::serve::request::RequestError;
use crate::serve::server::ServerState;
use wire::Value;

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
            number: self.number + 1,
            seed,
            ..Self::new(self.client)
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
        let drawn = || seed::noise(server.card.keys.seed, self.client.0, self.number);
        let episode = self.seed.unwrap_or_else(drawn);
        let chose_noise = asked.noise.is_some();
        let mut noise = asked.noise.into_iter().flatten();
        let row = |(row, window): (usize, Window)| {
            let mut row = PolicyRow {
                // Each row of a client acts in episodes of its own.
                env: EnvIndex(row),
                episode: self.number,
                seed: episode.wrapping_add(row as u64),
                inference: self.answered,
                window,
                continues: None,
                noise: noise.next(),
            };
            // For a policy that draws its noise from the seed of an episode, a seed is that of an
            // episode of its own, of which the row is the first.
            if let Some(noise) = &row.noise {
                row.seed = match noise {
                    RowNoise::Seed(seed) => *seed,
                    RowNoise::Given(_) => 0,
                };
                (row.episode, row.inference) = (0, 0);
            }
            row
        };
        let rows = asked.rows.into_iter().enumerate().map(row).collect();
        let chunks = server.ask(self.client, rows).await?;
        self.answered += u64::from(!chose_noise);
        Ok(chunks)
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
    let value = options?.get(name)?;
    (*value != Value::Nil).then_some(value)
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
    let seeds = seeds.as_list().filter(|seeds| seeds.len() == rows);
    let seeds = seeds.and_then(|seeds| seeds.iter().map(Value::as_u64).collect::<Option<Vec<_>>>());
    let seeds = seeds.ok_or_else(|| {
        format!("options 'noise_seeds' must be a list of {rows} whole numbers, one a row")
    })?;
    Ok(Some(seeds.into_iter().map(RowNoise::Seed).collect()))
}

fn given(noise: &Value, rows: usize, card: &ServedSpec) -> Result<Vec<RowNoise>, RequestError> {
    let [steps, width] = card.keys.noise_shape.ok_or_else(|| {
        let policy = card.facts.policy;
        format!(
            "options 'noise': policy {policy} has no noise to choose; `reset` with a 'seed' \
             determines its actions"
        )
    })?;
    let array = noise.as_array();
    let array = array.filter(|array| array.shape() == [rows, steps, width]);
    let array = array.ok_or_else(|| {
        format!("options 'noise' must be a numpy array of shape ({rows}, {steps}, {width})")
    })?;
    let numbers = array.to_f32();
    let rows = numbers.chunks(steps * width);
    Ok(rows.map(|row| RowNoise::Given(row.to_vec())).collect())
}
