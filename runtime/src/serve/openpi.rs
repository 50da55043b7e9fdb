//! openpi's observations and actions.
//!
//! ```text
//! observation/<view>   [H, W, 3] or [T, H, W, 3]    also video/<view>, <view>, images: {<view>: …}
//! observation/<state>  [D] or [T, D]                also state/<state>, <state>;
//!                                                   or observation/state with all of them
//! prompt               text                         noise_seed, noise: GR00T's row options
//! reset                true or {"seed": 7}          this request starts an episode
//! ─► {"actions": [horizon, all widths], "policy_timing": {"infer_ms": …},
//!     "server_timing": {"infer_ms": …}}
//! ```
//! Names are those of the policy; the metadata that a client receives when it connects lists
//! them. A view without a time axis gets one of length 1. A state of float64 becomes float32, as
//! openpi's transforms do. An observation in GR00T's own form is accepted as well.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;

use crate::clock::now;
use crate::policy::Chunk;
use crate::serve::card::ServedSpec;
use crate::serve::client::{ClientEpisode, chosen_noise, chosen_reset};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;
use crate::serve::observation::{ValidatedRequest, asked, reshaped};
use crate::serve::server::ServerState;
use crate::serve::stats::Counted;
use wire::{Array, Dialect, Key, Value, read, write};

/// Maximum bytes of the states in a message; as float32 they may take four times as many.
const LONGEST_STATES_BYTES: usize = 4 << 20;

/// The state of one client while it is connected.
#[derive(Debug)]
pub struct OpenpiClient {
    server: Arc<ServerState>,
    id: ConnectionId,
    episode: ClientEpisode,
    /// Time from the last request to its answer.
    last: Option<Duration>,
}

impl OpenpiClient {
    /// Creates a client that has sent nothing yet.
    pub fn new(server: Arc<ServerState>, id: ConnectionId) -> Self {
        Self {
            episode: ClientEpisode::new(id),
            server,
            id,
            last: None,
        }
    }

    /// Returns the metadata that a client receives when it connects.
    pub fn metadata(&self) -> Value {
        let card = &self.server.card;
        let widths = |keys: &[(String, usize)]| {
            keys.iter()
                .map(|(key, width)| json!([key, width]))
                .collect::<Vec<_>>()
        };
        let states: Vec<_> = card
            .states
            .iter()
            .map(|(key, width)| json!([key, width]))
            .collect();
        let facts: serde_json::Map<_, _> = card
            .facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        let mut metadata = json!({
            "policy": card.policy,
            "facts": facts,
            "views": card.modalities.video.keys,
            "view_steps": card.modalities.video.horizon(),
            "states": states,
            "state_steps": card.modalities.state.horizon(),
            "actions": widths(&card.actions),
            "action_horizon": card.horizon,
        });
        if !card.action_names.is_empty() {
            metadata["view_sizes"] = json!(card.view_sizes);
            metadata["action_names"] = json!(card.action_names);
        }
        Value::from(&metadata)
    }

    /// Answers one message.
    ///
    /// # Errors
    /// Returns the reason, which the client receives before its connection is closed.
    pub async fn answer(&mut self, body: Bytes) -> Result<Bytes, RequestError> {
        let started = now();
        let (card, limits, bytes) = (
            Arc::clone(&self.server.card),
            self.server.rules.limits,
            body.len(),
        );
        let decoded = self
            .server
            .decode(bytes, move || decode(&body, &card, &limits))
            .await?;
        let why_not = decoded.as_ref().err().and_then(RequestError::counted);
        if why_not != Some(Counted::Unreadable) {
            self.server.stats.asked("infer");
            self.server.connections().known(self.id);
        }
        let (asked, reset) = decoded?;
        if let Some(seed) = reset {
            self.episode.reset(seed);
        }
        let inferring = now();
        let chunks = self.episode.ask(&self.server, asked).await?;
        Ok(self.reply(&chunks, started, inferring))
    }

    fn reply(&mut self, chunks: &[Chunk], asked: Instant, inferring: Instant) -> Bytes {
        let milliseconds = |took: Duration| Value::Float(took.as_secs_f64() * 1e3);
        let infer = inferring.elapsed();
        let mut timing = Value::map([("infer_ms", milliseconds(infer))]);
        if let Some(last) = self.last {
            timing.set("prev_total_ms", milliseconds(last));
        }
        let value = Value::map([
            ("actions", side_by_side(chunks).into()),
            (
                "policy_timing",
                Value::map([("infer_ms", milliseconds(infer))]),
            ),
            ("server_timing", timing),
        ]);
        self.last = Some(asked.elapsed());
        write(&value, Dialect::Openpi).into()
    }
}

/// Decodes a message: all the work that takes time in proportion to its size. Returns the request,
/// and the seed of the episode that it starts, if it starts one.
fn decode(
    body: &Bytes,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<(ValidatedRequest, Option<Option<u64>>), RequestError> {
    let message = read(body).map_err(|err| RequestError::rejected(Counted::Unreadable, err))?;
    let mut asked = asked(&nested(&message.value, card), card, limits)?;
    asked.noise = chosen_noise(asked.rows.len(), Some(&options(&message.value)), card)?;
    Ok((asked, chosen_reset(message.value.get("reset"))?))
}

fn options(observation: &Value) -> Value {
    let mut options = Value::map([]);
    if let Some(seed) = observation.get("noise_seed") {
        options.set("noise_seeds", vec![seed.clone()].into());
    }
    if let Some(noise) = observation.get("noise") {
        options.set("noise", noise.clone());
    }
    options
}

/// Converts an observation to GR00T's form; missing members stay missing.
fn nested(observation: &Value, card: &ServedSpec) -> Value {
    if matches!(observation.get("video"), Some(Value::Map(_))) {
        return observation.clone();
    }
    let images = observation.get("images");
    let view = |key: &String| {
        let found = named(observation, "video", key)
            .or_else(|| images.and_then(|images| images.get(key)))?;
        Some((Key::from(key.as_str()), with_edges(found, 5)))
    };
    let video = card.modalities.video.keys.iter().filter_map(view);
    let vector = |key: &String| {
        let found = as_f32(named(observation, "state", key)?);
        Some((Key::from(key.as_str()), with_edges(&found, 3)))
    };
    let mut state: Vec<_> = card
        .modalities
        .state
        .keys
        .iter()
        .filter_map(vector)
        .collect();
    if state.is_empty() {
        state = parts(observation, card).unwrap_or_default();
    }
    let default = || card.prompt.clone().map(Value::Text);
    let prompt = observation.get("prompt").cloned().or_else(default);
    let prompt = prompt.map(|prompt| Value::List(vec![Value::List(vec![prompt])]));
    let language = prompt.map(|prompt| (Key::from(card.modalities.language_key()), prompt));
    Value::map([
        ("video", Value::Map(video.collect())),
        ("state", Value::Map(state)),
        ("language", Value::Map(language.into_iter().collect())),
    ])
}

fn named<'a>(observation: &'a Value, kind: &str, key: &str) -> Option<&'a Value> {
    let names = [
        format!("observation/{key}"),
        format!("{kind}/{key}"),
        key.to_owned(),
    ];
    names.iter().find_map(|name| observation.get(name))
}

/// Splits `observation/state` or `state` into the checkpoint's vectors, if their lengths are known
/// and add up.
fn parts(observation: &Value, card: &ServedSpec) -> Option<Vec<(Key, Value)>> {
    let Value::Array(whole) = as_f32(named(observation, "state", "state")?) else {
        return None;
    };
    let known: Option<usize> = card.states.iter().map(|(_, width)| *width).sum();
    if Some(whole.shape().iter().product()) != known {
        return None;
    }
    let numbers = whole.to_f32();
    let mut left = &numbers[..];
    let split = card.states.iter().map(|(key, width)| {
        let (part, rest) = left.split_at_checked((*width)?)?;
        left = rest;
        let part = Array::of_f32(&[1, 1, part.len()], part);
        Some((Key::from(key.as_str()), part.into()))
    });
    let split: Option<Vec<_>> = split.collect();
    split.filter(|_| left.is_empty())
}

/// Converts an array of another type to float32. An array that is too long for a state stays as it
/// is, and is refused later for its length.
fn as_f32(value: &Value) -> Value {
    match value {
        Value::Array(array)
            if array.dtype().descr() != "<f4" && array.data().len() <= LONGEST_STATES_BYTES =>
        {
            Array::of_f32(array.shape(), &array.to_f32()).into()
        }
        other => other.clone(),
    }
}

/// Adds leading axes of length 1 until the array has `wanted` axes.
fn with_edges(value: &Value, wanted: usize) -> Value {
    let Value::Array(found) = value else {
        return value.clone();
    };
    let missing = wanted.saturating_sub(found.shape().len());
    let shape = std::iter::repeat_n(1, missing)
        .chain(found.shape().iter().copied())
        .collect();
    reshaped(found, shape)
}

/// Returns all actions: `[horizon, width]`, or `[rows, horizon, width]` for more than one row.
fn side_by_side(chunks: &[Chunk]) -> Array {
    let numbers: Vec<f32> = chunks.iter().flat_map(Chunk::values).copied().collect();
    let shape = chunks
        .first()
        .map_or([0, 0], |chunk| [chunk.horizon(), chunk.action_dim()]);
    let [horizon, width] = shape;
    match chunks.len() {
        1 => Array::of_f32(&[horizon, width], &numbers),
        rows => Array::of_f32(&[rows, horizon, width], &numbers),
    }
}
