//! openpi's protocol over websockets, as spoken by its `WebsocketPolicyServer` and any other server
//! that behaves like it.
//!
//! ```text
//! Observation ─► Wiring: the server's keys ─► picture: 224 × 224 with black bars ─► one request
//! {"actions": [horizon, action_dim]} ─► Chunk
//! ```
//! The protocol allows one observation per request. Arena's client asks for one environment after
//! the other. Here each environment has its own connection, so that the server already has the next
//! request when it has answered one, and may infer several together.
//!
//! The server's half is here. Its observations and actions:
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

mod client;

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use wire::{Array, Dialect, Key, Value, read, write};

use crate::clock::now;
use crate::policy::Chunk;
use crate::protocols::observation::{ValidatedRequest, asked, divided, reshaped};
use crate::serve::card::ServedSpec;
use crate::serve::client::{chosen_noise, chosen_reset};
use crate::serve::request::{RequestError, RequestLimits};
use crate::serve::session::{Reply, ServerCodec, Session, Then};
use crate::serve::stats::Counted;

/// Maximum bytes of the states in a message; as float32 they may take four times as many.
const LONGEST_STATES_BYTES: usize = 4 << 20;

/// What the server says to one client.
#[derive(Default)]
pub(crate) struct OpenpiServer {
    /// Time from the last request to its answer.
    last: Option<Duration>,
}

/// Returns the metadata that a client receives when it connects.
pub(crate) fn metadata(card: &ServedSpec) -> Value {
    let facts = card.facts.reported.iter();
    let facts = facts.map(|(name, value)| ((*name).to_owned(), value.clone()));
    let mut metadata = json!({
        "policy": card.facts.policy,
        "facts": facts.collect::<serde_json::Map<_, _>>(),
        "views": card.keys.modalities.video.keys,
        "view_steps": card.keys.modalities.video.horizon(),
        "states": card.keys.states,
        "state_steps": card.keys.modalities.state.horizon(),
        "actions": card.keys.actions,
        "action_horizon": card.horizon,
    });
    if let Some(interface) = &card.interface {
        let sizes = card.cameras();
        let sizes = sizes.map(|camera| (&camera.name, [camera.height, camera.width]));
        metadata["view_sizes"] = json!(sizes.collect::<Vec<_>>());
        metadata["action_names"] = json!(interface.action.names);
    }
    Value::from(&metadata)
}

impl OpenpiServer {
    async fn infer(
        &mut self,
        client: &mut Session,
        body: Result<Bytes, RequestError>,
    ) -> Result<Bytes, RequestError> {
        let (started, body) = (now(), body?);
        let bytes = body.len();
        let decode = move |card: &_, limits: &_| decode(&body, card, limits);
        let decoded = client.decode(bytes, decode).await?;
        let why_not = decoded.as_ref().err().and_then(|err| err.counted);
        if why_not != Some(Counted::Unreadable) {
            client.asks("infer");
        }
        let (asked, reset) = decoded?;
        if let Some(seed) = reset {
            client.episode.reset(seed);
        }
        let inferring = now();
        let chunks = client.episode.ask(&client.server, asked).await?;
        let milliseconds = |took: Duration| Value::Float(took.as_secs_f64() * 1e3);
        let infer = milliseconds(inferring.elapsed());
        let mut timing = vec![(Key::from("infer_ms"), infer.clone())];
        let last = self.last.map(milliseconds);
        timing.extend(last.map(|last| (Key::from("prev_total_ms"), last)));
        let value = Value::map([
            ("actions", side_by_side(&chunks).into()),
            ("policy_timing", Value::map([("infer_ms", infer)])),
            ("server_timing", Value::Map(timing)),
        ]);
        self.last = Some(started.elapsed());
        Ok(write(&value, Dialect::Openpi).into())
    }
}

impl ServerCodec for OpenpiServer {
    /// Answers an error as text, after which the connection is closed.
    async fn answer(&mut self, client: &mut Session, body: Result<Bytes, RequestError>) -> Reply {
        match self.infer(client, body).await {
            Ok(answer) => Reply::to_request(answer, Ok(())),
            Err(err) => Reply {
                message: Some(Message::text(err.to_string())),
                outcome: Some(Err(err)),
                then: Then::Close,
            },
        }
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
    let seeds = message.value.get("noise_seed").cloned();
    let noise = message.value.get("noise").cloned();
    let options = Value::map([
        (
            "noise_seeds",
            seeds.map_or(Value::Nil, |seed| vec![seed].into()),
        ),
        ("noise", noise.unwrap_or(Value::Nil)),
    ]);
    asked.noise = chosen_noise(asked.rows.len(), Some(&options), card)?;
    Ok((asked, chosen_reset(message.value.get("reset"))?))
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
    let video = card.keys.modalities.video.keys.iter().filter_map(view);
    let vector = |key: &String| {
        let found = as_f32(named(observation, "state", key)?);
        Some((Key::from(key.as_str()), with_edges(&found, 3)))
    };
    let vectors = card.keys.modalities.state.keys.iter();
    let mut state: Vec<_> = vectors.filter_map(vector).collect();
    if state.is_empty() {
        state = parts(observation, card).unwrap_or_default();
    }
    let own = card
        .interface
        .as_ref()
        .map(|interface| &*interface.language);
    let prompt = observation.get("prompt").cloned().or(own.map(Value::from));
    let prompt = prompt.map(|prompt| Value::List(vec![Value::List(vec![prompt])]));
    let language = prompt.map(|prompt| (Key::from(card.keys.modalities.language_key()), prompt));
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
    let whole = named(observation, "state", "state")?.as_array()?;
    let lengths: Vec<_> = card.keys.states.iter().map(|(_, length)| *length).collect();
    let known: Option<usize> = lengths.iter().copied().sum();
    if known != Some(whole.shape().iter().product()) {
        return None;
    }
    let numbers = whole.to_f32();
    let parts = card.keys.states.iter().zip(divided(&numbers, &lengths)?);
    let parts = parts.map(|((key, _), part)| {
        let part = Array::of_f32(&[1, 1, part.len()], part);
        (Key::from(key.as_str()), part.into())
    });
    Some(parts.collect())
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
