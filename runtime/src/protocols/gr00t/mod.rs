//! GR00T's protocol over ZeroMQ, as spoken by its `PolicyClient` and `PolicyServer`
//! (gr00t/policy/server_client.py, N1.7).
//!
//! ```text
//! start     get_modality_config ─► keys, past steps, dialect ─► Wiring to environment
//! episode   reset, before the first inference after it
//! chunk     get_action: one batch of all rows due ─► {key: [rows, horizon, width]} ─► Chunks
//! ```
//! The server's half is here: reads requests, and words errors as the reference does.

mod client;
pub mod validation;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use wire::{Array, Dialect, Key, Value, peek_text, read, write};

use crate::policy::Chunk;
use crate::protocols::gr00t::validation::validate_flat;
use crate::protocols::observation::{ValidatedRequest, asked};
use crate::serve::card::ServedSpec;
use crate::serve::client::{chosen_noise, chosen_seed};
use crate::serve::request::{RequestError, RequestLimits};
use crate::serve::session::{Reply, ServerCodec, Session, Then};
use crate::serve::stats::Counted;

/// What the server says to one client.
pub struct Gr00tServer {
    /// Encoding of the arrays in the client's last message.
    dialect: Dialect,
}

/// A decoded message.
struct Decoded {
    /// Encoding of the arrays of its answer.
    dialect: Dialect,
    /// Name of the endpoint, if it could be read.
    endpoint: Option<String>,
    asked: Result<Asked, RequestError>,
}

/// What a client asks for.
enum Asked {
    Say(Value),
    Kill,
    Reset(Option<u64>),
    /// Actions, with this before each of their keys.
    Infer(ValidatedRequest, &'static str),
}

impl Gr00tServer {
    /// Starts with the encoding for clients that have sent no arrays.
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect }
    }

    /// Returns the answer to a message, or none if the server is to stop.
    async fn value(
        &mut self,
        client: &mut Session,
        body: Bytes,
    ) -> Result<Option<Value>, RequestError> {
        let rules = &client.server.rules;
        // Check the token before anything is decoded, so that an unauthenticated message costs no
        // more than a scan of its keys.
        if rules.api_token.is_some() && !client.server.lets_in(peek_text(&body, "api_token")) {
            let text = "Unauthorized: Invalid API token";
            return Err(RequestError::rejected(Counted::Unauthorized, text));
        }
        client.server.connections().authenticated(client.id);
        let (bytes, before) = (body.len(), self.dialect);
        let decode = move |card: &_, limits: &_| decode(&body, before, card, limits);
        let decoded = client.decode(bytes, decode).await?;
        self.dialect = decoded.dialect;
        if let Some(endpoint) = &decoded.endpoint {
            client.asks(endpoint);
        }
        match decoded.asked? {
            Asked::Say(value) => Ok(Some(value)),
            Asked::Kill if client.server.rules.ignore_kill => {
                let text = "this server is not ended by clients (--ignore-kill)";
                Err(RequestError::new(text))
            }
            Asked::Kill => Ok(None),
            Asked::Reset(seed) => {
                client.episode.reset(seed);
                Ok(Some(Value::map([])))
            }
            Asked::Infer(asked, prefix) => {
                let chunks = client.episode.ask(&client.server, asked).await?;
                let actions = by_key(&chunks, &client.server.card.keys.actions, prefix);
                Ok(Some(vec![actions, Value::map([])].into()))
            }
        }
    }
}

impl ServerCodec for Gr00tServer {
    /// Answers an invalid message with an error.
    async fn answer(&mut self, client: &mut Session, body: Result<Bytes, RequestError>) -> Reply {
        let answer = match body {
            Ok(body) => self.value(client, body).await,
            Err(err) => Err(err),
        };
        let (value, then, outcome) = match answer {
            Ok(Some(value)) => (value, Then::GoOn, Ok(())),
            Ok(None) => (Value::Nil, Then::Stop, Ok(())),
            Err(err) => {
                let error = Value::map([("error", err.to_string().into())]);
                (error, Then::GoOn, Err(err))
            }
        };
        Reply {
            then,
            ..Reply::to_request(write(&value, self.dialect), outcome)
        }
    }
}

/// Decodes a message of an authenticated client, whose last one had arrays of the dialect `before`.
fn decode(body: &Bytes, before: Dialect, card: &ServedSpec, limits: &RequestLimits) -> Decoded {
    let (request, dialect) = match read(body) {
        Ok(message) => (message.value, message.dialect.unwrap_or(before)),
        Err(err) => {
            return Decoded {
                dialect: before,
                endpoint: None,
                asked: Err(RequestError::rejected(Counted::Unreadable, err)),
            };
        }
    };
    let endpoint = match (&request, request.get("endpoint")) {
        (Value::Map(_), None) => Some("get_action"),
        (Value::Map(_), Some(other)) => Some(other.as_text().unwrap_or(other.type_name())),
        _ => None,
    };
    let asked = match endpoint {
        Some("ping") => Ok(Asked::Say(Value::map([
            ("status", "ok".into()),
            ("message", "Server is running".into()),
        ]))),
        Some("kill") => Ok(Asked::Kill),
        Some("get_modality_config") => Ok(Asked::Say(modality_config(card, dialect))),
        Some("reset") => arguments(&request, "reset", ["options"])
            .and_then(|[options]| chosen_seed(options))
            .map(Asked::Reset),
        Some("get_action") => get_action(&request, card, limits),
        Some(other) => Err(RequestError::new(format!("Unknown endpoint: {other}"))),
        None => {
            let found = request.type_name();
            let text = format!("'{found}' object has no attribute 'get'");
            Err(RequestError::new(text))
        }
    };
    Decoded {
        dialect,
        endpoint: endpoint.map(str::to_owned),
        asked,
    }
}

fn modality_config(card: &ServedSpec, dialect: Dialect) -> Value {
    let json = card.keys.modalities.to_json();
    let modalities = json.as_object().into_iter().flatten();
    let modalities = modalities.map(|(name, config)| {
        let config = Value::map([
            (dialect.modality_marker(), true.into()),
            ("as_json", Value::from(config)),
        ]);
        (Key::from(name.as_str()), config)
    });
    Value::Map(modalities.collect())
}

fn get_action(
    request: &Value,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<Asked, RequestError> {
    let [observation, options] = arguments(request, "get_action", ["observation", "options"])?;
    let observation = observation.ok_or_else(|| {
        let missing = "missing 1 required positional argument: 'observation'";
        format!("BasePolicy.get_action() {missing}")
    })?;
    let is_flat = is_flat(observation);
    let mut asked = if is_flat {
        let nested =
            validate_flat(observation, &card.keys.modalities).map_err(RequestError::new)?;
        asked(&nested, card, limits)?
    } else {
        asked(observation, card, limits)?
    };
    asked.noise = chosen_noise(asked.rows.len(), options, card)?;
    Ok(Asked::Infer(asked, if is_flat { "action." } else { "" }))
}

/// Returns whether this is an observation of the simulation wrapper (`Gr00tSimPolicyWrapper`), with
/// keys such as `video.<key>`.
fn is_flat(observation: &Value) -> bool {
    let Value::Map(members) = observation else {
        return false;
    };
    let nested = ["video", "state", "language"].map(|name| observation.get(name));
    let is_of_one = |key: &Key| match key {
        Key::Text(key) => key.starts_with("video.") || key.starts_with("state."),
        Key::Bytes(_) => false,
    };
    nested == [None; 3] && members.iter().any(|(key, _)| is_of_one(key))
}

/// Returns the keyword arguments of a method, or Python's error message for an unexpected one.
fn arguments<'a, const N: usize>(
    request: &'a Value,
    method: &'static str,
    names: [&str; N],
) -> Result<[Option<&'a Value>; N], RequestError> {
    let refuse = |text| RequestError::new(format_args!("BasePolicy.{method}() {text}"));
    let data = request.get("data");
    let members = match data {
        None => &[][..],
        Some(Value::Map(members)) => members,
        Some(other) => {
            let found = other.type_name();
            return Err(refuse(format!(
                "argument after ** must be a mapping, not {found}"
            )));
        }
    };
    let is_known = |key: &Key| names.iter().any(|name| key.is(name));
    if let Some((key, _)) = members.iter().find(|(key, _)| !is_known(key)) {
        let argument = key.shown();
        return Err(refuse(format!(
            "got an unexpected keyword argument '{argument}'"
        )));
    }
    Ok(names.map(|name| data.and_then(|data| data.get(name))))
}

/// Returns a map of arrays of shape `[rows, horizon, width]`.
fn by_key(chunks: &[Chunk], actions: &[(String, usize)], prefix: &str) -> Value {
    let horizon = chunks.first().map_or(0, Chunk::horizon);
    let mut from = 0;
    let keys = actions.iter().map(|(key, width)| {
        let part = from..from + width;
        from = part.end;
        let steps = chunks.iter().flat_map(Chunk::actions);
        let steps: Vec<&[f32]> = steps.map(|step| &step[part.clone()]).collect();
        let array = Array::of_f32(&[chunks.len(), horizon, *width], &steps.concat());
        (Key::Text(format!("{prefix}{key}")), Value::Array(array))
    });
    Value::Map(keys.collect())
}
