//! GR00T's endpoints: what a request asks for, and the reference's words for what is wrong with it.
//! gr00t/policy/server_client.py.

use std::sync::Arc;

use bytes::Bytes;

use crate::policy::gr00t::processor::{Object, Observations, validate_flat};
use crate::policy::served::{Actions, Question};
use crate::serve::batcher::ClientId;
use crate::serve::client::Episode;
use crate::serve::house::{House, Then};
use crate::serve::observation::object;
use crate::wire::{Array, Dialect, Key, Value, WireError, read, write};

/// One client, as long as its connection lives.
#[derive(Debug)]
pub struct Client {
    house: Arc<House>,
    id: ClientId,
    episode: Episode,
    /// How its last arrays were written.
    dialect: Dialect,
}

/// What is answered.
enum Answer {
    Value(Value),
    Killed,
}

impl Client {
    /// A client that has said nothing yet.
    pub fn new(house: Arc<House>, id: ClientId) -> Self {
        Self { episode: Episode::new(id), dialect: house.arrays, house, id }
    }

    /// Answers one message; one that is wrong has an answer, too.
    pub async fn answer(&mut self, parts: &[Bytes]) -> Then {
        let answer = match parts {
            [body] => self.read(body).await,
            _ => Err(format!("a message of one part is needed, there are {}", parts.len())),
        };
        let (answer, ends) = match answer {
            Ok(Answer::Value(value)) => (value, false),
            Ok(Answer::Killed) => (Value::Nil, true),
            Err(error) => (Value::map([("error", error.into())]), false),
        };
        let bytes = Bytes::from(write(&answer, self.dialect));
        if ends { Then::End(bytes) } else { Then::GoOn(bytes) }
    }

    async fn read(&mut self, body: &Bytes) -> Result<Answer, String> {
        let message = read(body).map_err(|err| {
            self.house.stats.unreadable();
            WireError::in_python(&err)
        })?;
        self.dialect = message.dialect.unwrap_or(self.dialect);
        let request = &message.value;
        if !matches!(request, Value::Map(_)) {
            return Err(format!("'{}' object has no attribute 'get'", request.type_name()));
        }
        if !self.house.lets_in(request.get("api_token").and_then(Value::as_text)) {
            self.house.stats.unauthorized();
            return Err("Unauthorized: Invalid API token".to_owned());
        }
        let endpoint = request.get("endpoint").unwrap_or(&Value::Nil);
        let endpoint = match endpoint {
            Value::Nil if request.get("endpoint").is_none() => "get_action",
            other => other.as_text().unwrap_or(other.type_name()),
        };
        self.house.stats.asked(endpoint);
        match endpoint {
            "ping" => Ok(Answer::Value(Value::map([("status", "ok".into()), ("message", "Server is running".into())]))),
            "kill" if self.house.ignores_kill => Err("this server is not ended by clients (--ignore-kill)".to_owned()),
            "kill" => Ok(Answer::Killed),
            "get_modality_config" => Ok(Answer::Value(self.modality_config())),
            "reset" => {
                let [options] = arguments(request, "reset", ["options"])?;
                self.episode.reset(options)?;
                Ok(Answer::Value(Value::map([])))
            }
            "get_action" => self.get_action(request).await.map(Answer::Value),
            other => Err(format!("Unknown endpoint: {other}")),
        }
    }

    async fn get_action(&mut self, request: &Value) -> Result<Value, String> {
        let [observation, options] = arguments(request, "get_action", ["observation", "options"])?;
        let missing = "BasePolicy.get_action() missing 1 required positional argument: 'observation'";
        let observation = object(observation.ok_or(missing)?);
        let modalities = &self.house.card.modalities;
        let is_flat = is_flat(&observation);
        let observation = match is_flat {
            true => validate_flat(&observation, modalities).map_err(|err| err.to_string())?,
            false => observation,
        };
        let rows = Observations::read(&observation, modalities).map_err(|err| err.to_string())?.size();
        let noise = self.episode.noise(rows, options, &self.house.card)?;
        let actions = self.house.ask(self.id, rows, Question { observation, noise }).await?;
        Ok(vec![by_key(&actions, if is_flat { "action." } else { "" }), Value::map([])].into())
    }

    fn modality_config(&self) -> Value {
        let json = self.house.card.modalities.to_json();
        let modalities = json.as_object().into_iter().flatten().map(|(name, config)| {
            let config = Value::map([(self.dialect.modality_marker(), true.into()), ("as_json", Value::from(config))]);
            (Key::from(name.as_str()), config)
        });
        Value::Map(modalities.collect())
    }
}

/// Whether it is an observation of the simulation wrapper (`Gr00tSimPolicyWrapper`): `video.<key>` and the like.
fn is_flat(observation: &Object) -> bool {
    let Object::Map(members) = observation else { return false };
    let has = |name: &str| members.iter().any(|(key, _)| key == name);
    let nested = ["video", "state", "language"].into_iter().any(has);
    !nested && members.iter().any(|(key, _)| key.starts_with("video.") || key.starts_with("state."))
}

/// The keyword arguments of a method, in the words of Python where there is another one.
fn arguments<'a, const N: usize>(
    request: &'a Value,
    method: &str,
    names: [&str; N],
) -> Result<[Option<&'a Value>; N], String> {
    let members = match request.get("data") {
        None => &[][..],
        Some(Value::Map(members)) => members,
        Some(other) => {
            return Err(format!(
                "BasePolicy.{method}() argument after ** must be a mapping, not {}",
                other.type_name()
            ));
        }
    };
    if let Some((key, _)) = members.iter().find(|(key, _)| !names.iter().any(|name| key.is(name))) {
        return Err(format!("BasePolicy.{method}() got an unexpected keyword argument '{}'", key.shown()));
    }
    Ok(names.map(|name| members.iter().rev().find(|(key, _)| key.is(name)).map(|(_, value)| value)))
}

/// A map of arrays `[rows, horizon, width]`.
fn by_key(actions: &Actions, prefix: &str) -> Value {
    let keys = actions.keys.iter().map(|(key, width, values)| {
        let array = Array::of_f32(&[actions.rows, actions.horizon, *width], values);
        (Key::Text(format!("{prefix}{key}")), Value::Array(array))
    });
    Value::Map(keys.collect())
}
