//! GR00T's endpoints: reads requests, and words errors as the reference does. Source:
//! gr00t/policy/server_client.py.

use std::sync::Arc;

use bytes::Bytes;

use crate::policy::Chunk;
use crate::serve::card::ServedSpec;
use crate::serve::client::{ClientEpisode, chosen_noise, chosen_seed};
use crate::serve::connections::ConnectionId;
use crate::serve::error::RequestError;
use crate::serve::limits::RequestLimits;
use crate::serve::observation::{ValidatedRequest, asked};
use crate::serve::server::ServerState;
use crate::serve::session::{Reply, Then};
use crate::serve::stats::Counted;
use crate::serve::validation::validate_flat;
use wire::{Array, Dialect, Key, Value, peek_text, read, write};

/// The state of one client while it is connected.
#[derive(Debug)]
pub struct Gr00tClient {
    server: Arc<ServerState>,
    id: ConnectionId,
    episode: ClientEpisode,
    /// Encoding of the arrays in its last message.
    dialect: Dialect,
}

/// The answer to a request.
enum EndpointAnswer {
    Value(Value),
    Killed,
}

/// A decoded message.
#[derive(Debug)]
struct DecodedRequest {
    /// Encoding of its arrays, if it has any.
    dialect: Option<Dialect>,
    /// Name of the endpoint, if it could be read.
    endpoint: Option<String>,
    request: Result<EndpointRequest, RequestError>,
}

/// A request of a client.
#[derive(Debug)]
enum EndpointRequest {
    Ping,
    Kill,
    ModalityConfig,
    Reset {
        seed: Option<u64>,
    },
    GetAction {
        asked: Box<ValidatedRequest>,
        is_flat: bool,
    },
}

impl Gr00tClient {
    /// Creates a client that has sent nothing yet.
    pub fn new(server: Arc<ServerState>, id: ConnectionId) -> Self {
        Self {
            episode: ClientEpisode::new(id),
            dialect: server.rules.arrays,
            server,
            id,
        }
    }

    /// Answers one message; an invalid message gets an error as its answer.
    pub async fn answer(&mut self, parts: Vec<Bytes>) -> Reply {
        let answer = match <[Bytes; 1]>::try_from(parts) {
            Ok([body]) => self.read(body).await,
            Err(parts) => {
                let found = parts.len();
                let text = format!("found a message of {found} parts, expected one part");
                Err(RequestError::new(text))
            }
        };
        let then = match &answer {
            Ok(EndpointAnswer::Killed) => Then::Stop,
            _ => Then::GoOn,
        };
        let (value, outcome) = match answer {
            Ok(EndpointAnswer::Value(value)) => (value, Ok(())),
            Ok(EndpointAnswer::Killed) => (Value::Nil, Ok(())),
            Err(err) => (Value::map([("error", err.to_string().into())]), Err(err)),
        };
        Reply {
            then,
            ..Reply::to_request(write(&value, self.dialect), outcome)
        }
    }

    async fn read(&mut self, body: Bytes) -> Result<EndpointAnswer, RequestError> {
        // Check the token before anything is decoded, so that an unauthenticated message costs no
        // more than a scan of its keys.
        if self.server.rules.token.is_some() && !self.server.lets_in(peek_text(&body, "api_token"))
        {
            let text = "Unauthorized: Invalid API token";
            return Err(RequestError::rejected(Counted::Unauthorized, text));
        }
        self.server.connections().authenticated(self.id);
        let (card, limits, body_bytes) = (
            Arc::clone(&self.server.card),
            self.server.rules.limits,
            body.len(),
        );
        let decode = move || decode(&body, &card, &limits);
        let decoded = self.server.decode(body_bytes, decode).await?;
        self.dialect = decoded.dialect.unwrap_or(self.dialect);
        if let Some(endpoint) = &decoded.endpoint {
            self.server.stats.asked(endpoint);
            self.server.connections().known(self.id);
        }
        match decoded.request? {
            EndpointRequest::Ping => Ok(EndpointAnswer::Value(Value::map([
                ("status", "ok".into()),
                ("message", "Server is running".into()),
            ]))),
            EndpointRequest::Kill if self.server.rules.ignores_kill => {
                let text = "this server is not ended by clients (--ignore-kill)";
                Err(RequestError::new(text))
            }
            EndpointRequest::Kill => Ok(EndpointAnswer::Killed),
            EndpointRequest::ModalityConfig => Ok(EndpointAnswer::Value(self.modality_config())),
            EndpointRequest::Reset { seed } => {
                self.episode.reset(seed);
                Ok(EndpointAnswer::Value(Value::map([])))
            }
            EndpointRequest::GetAction { asked, is_flat } => self
                .get_action(*asked, is_flat)
                .await
                .map(EndpointAnswer::Value),
        }
    }

    async fn get_action(
        &mut self,
        asked: ValidatedRequest,
        is_flat: bool,
    ) -> Result<Value, RequestError> {
        let chunks = self.episode.ask(&self.server, asked).await?;
        let prefix = if is_flat { "action." } else { "" };
        Ok(vec![
            by_key(&chunks, &self.server.card.actions, prefix),
            Value::map([]),
        ]
        .into())
    }

    fn modality_config(&self) -> Value {
        let json = self.server.card.modalities.to_json();
        let modalities = json
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, config)| {
                let config = Value::map([
                    (self.dialect.modality_marker(), true.into()),
                    ("as_json", Value::from(config)),
                ]);
                (Key::from(name.as_str()), config)
            });
        Value::Map(modalities.collect())
    }
}

/// Decodes a message of an authenticated client: all the work that takes time in proportion to its
/// size.
fn decode(body: &Bytes, card: &ServedSpec, limits: &RequestLimits) -> DecodedRequest {
    let message = match read(body) {
        Ok(message) => message,
        Err(err) => {
            return DecodedRequest {
                dialect: None,
                endpoint: None,
                request: Err(RequestError::rejected(Counted::Unreadable, err)),
            };
        }
    };
    let request = &message.value;
    if !matches!(request, Value::Map(_)) {
        let text = format!("'{}' object has no attribute 'get'", request.type_name());
        return DecodedRequest {
            dialect: message.dialect,
            endpoint: None,
            request: Err(RequestError::new(text)),
        };
    }
    let endpoint = match request.get("endpoint") {
        None => "get_action",
        Some(other) => other.as_text().unwrap_or(other.type_name()),
    };
    let request = understand(endpoint, request, card, limits);
    DecodedRequest {
        dialect: message.dialect,
        endpoint: Some(endpoint.to_owned()),
        request,
    }
}

fn understand(
    endpoint: &str,
    request: &Value,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<EndpointRequest, RequestError> {
    match endpoint {
        "ping" => Ok(EndpointRequest::Ping),
        "kill" => Ok(EndpointRequest::Kill),
        "get_modality_config" => Ok(EndpointRequest::ModalityConfig),
        "reset" => {
            let [options] = arguments(request, "reset", ["options"])?;
            Ok(EndpointRequest::Reset {
                seed: chosen_seed(options)?,
            })
        }
        "get_action" => get_action(request, card, limits),
        other => Err(RequestError::new(format!("Unknown endpoint: {other}"))),
    }
}

fn get_action(
    request: &Value,
    card: &ServedSpec,
    limits: &RequestLimits,
) -> Result<EndpointRequest, RequestError> {
    let [observation, options] = arguments(request, "get_action", ["observation", "options"])?;
    let observation = observation.ok_or_else(|| {
        let missing = "missing 1 required positional argument: 'observation'";
        format!("BasePolicy.get_action() {missing}")
    })?;
    let is_flat = is_flat(observation);
    let flat = || validate_flat(observation, &card.modalities).map_err(RequestError::new);
    let mut asked = match is_flat {
        true => asked(&flat()?, card, limits)?,
        false => asked(observation, card, limits)?,
    };
    asked.noise = chosen_noise(asked.rows.len(), options, card)?;
    Ok(EndpointRequest::GetAction {
        asked: Box::new(asked),
        is_flat,
    })
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
        _ => false,
    };
    nested == [None; 3] && members.iter().any(|(key, _)| is_of_one(key))
}

/// Returns the keyword arguments of a method, or Python's error message for an unexpected one.
fn arguments<'a, const N: usize>(
    request: &'a Value,
    method: &'static str,
    names: [&str; N],
) -> Result<[Option<&'a Value>; N], RequestError> {
    let members = match request.get("data") {
        None => &[][..],
        Some(Value::Map(members)) => members,
        Some(other) => {
            let found = other.type_name();
            return Err(RequestError::new(format!(
                "BasePolicy.{method}() argument after ** must be a mapping, not {found}"
            )));
        }
    };
    if let Some((key, _)) = members
        .iter()
        .find(|(key, _)| !names.iter().any(|name| key.is(name)))
    {
        let argument = key.shown();
        return Err(RequestError::new(format!(
            "BasePolicy.{method}() got an unexpected keyword argument '{argument}'"
        )));
    }
    Ok(names.map(|name| {
        members
            .iter()
            .rev()
            .find(|(key, _)| key.is(name))
            .map(|(_, value)| value)
    }))
}

/// Returns a map of arrays of shape `[rows, horizon, width]`.
fn by_key(chunks: &[Chunk], actions: &[(String, usize)], prefix: &str) -> Value {
    let horizon = chunks.first().map_or(0, Chunk::horizon);
    let mut from = 0;
    let keys = actions.iter().map(|(key, width)| {
        let part = from..from + width;
        from = part.end;
        let steps = chunks.iter().flat_map(Chunk::actions);
        let numbers: Vec<f32> = steps
            .flat_map(|step| &step[part.clone()])
            .copied()
            .collect();
        let array = Array::of_f32(&[chunks.len(), horizon, *width], &numbers);
        (Key::Text(format!("{prefix}{key}")), Value::Array(array))
    });
    Value::Map(keys.collect())
}
