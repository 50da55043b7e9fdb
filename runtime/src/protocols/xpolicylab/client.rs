//! The client's half: says when episodes begin and end, and asks for one environment after the
//! other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jobs::policies::{PolicyType, Server, Xpolicylab};
use jobs::wiring::{Sides, Wiring, xpolicylab};
use wire::{Key, Value};

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::{Chunk, PolicyError, PolicyFacts, PolicyRow, RowError, argument, seen};
use crate::protocols::xpolicylab::{
    HELLO, INFER, MOST_ACTIONS, MessageTypes, RESET, TRIAL_END, payload, read_chunk, request,
};
use crate::protocols::{CallError, ClientCodec, Exchange, OnServer, Transport, inputs, picture};

/// Version of the format of observations that are sent.
const DATA_FORMAT: &str = "v1.0";

/// Number of random bytes in an identifier.
const ID_BYTES: usize = 16;

/// The actions of a robot with one arm that is controlled by its joints.
const ACTION_KEYS: [&str; 2] = ["arm_joint_state", "ee_joint_state"];

impl OnServer for Xpolicylab {
    type Codec = XpolicylabClient;
    /// XPolicyLab: `PolicyServerConfig`.
    const PORT: u16 = 19000;
    /// XPolicyLab: `request_timeout_s` of `PolicyEvalClientConfig`.
    const TIMEOUT: Duration = Duration::from_secs(120);

    fn server(&self) -> (&Server, Option<&PathBuf>) {
        self.websocket.place()
    }

    fn check(&self) -> Result<Option<usize>, PolicyError> {
        action_keys(self).map(|_| None)
    }

    fn client(self, server: &PolicyServer, env: &EnvSpec) -> Result<XpolicylabClient, PolicyError> {
        let sides = Sides::new(PolicyType::XpolicylabRemote, env);
        Ok(XpolicylabClient {
            wiring: xpolicylab(sides, self.observation_mapping.as_ref())?,
            evaluation_id: fresh_id().map_err(|reason| server.error(reason))?,
            action_keys: action_keys(&self)?,
            action_dim: env.action.names.len(),
            control_hz: env.control_hz,
            messages: 0,
            trials: BTreeMap::new(),
            over: Vec::new(),
            given: Arc::new(self),
        })
    }
}

/// Returns the server's actions, in the order of the environment's action vector.
fn action_keys(given: &Xpolicylab) -> Result<Vec<String>, PolicyError> {
    let Some(keys) = given.action_keys.as_ref().map(|keys| &keys.0) else {
        return Ok(ACTION_KEYS.map(str::to_owned).to_vec());
    };
    if keys.is_empty() {
        return Err(argument("action_keys", "[]", "expected at least one key"));
    }
    let mut nth = keys.iter().enumerate();
    match nth.find(|(nth, key)| keys[..*nth].contains(key)) {
        None => Ok(keys.clone()),
        Some((_, key)) => {
            let (found, wanted) = (format!("{keys:?}"), format!("with {key} twice"));
            Err(argument("action_keys", &found, &wanted))
        }
    }
}

/// What a client says to a server of XPolicyLab. The protocol has no tokens; one is sent as
/// `Authorization: Bearer …`, for a proxy in front of the server.
#[derive(Clone)]
pub(crate) struct XpolicylabClient {
    given: Arc<Xpolicylab>,
    wiring: Wiring,
    action_keys: Vec<String>,
    action_dim: usize,
    control_hz: u32,
    /// Names this client; the start of each `message_id`.
    evaluation_id: String,
    /// Number of requests that were answered. One that was not has the same `message_id` when it is
    /// sent again, so that newer servers do not infer twice.
    messages: u64,
    /// The episodes that the server was told of, and that are not over.
    trials: BTreeMap<EnvIndex, String>,
    /// Those that are over, which the server was not told.
    over: Vec<String>,
}

impl XpolicylabClient {
    /// Sends a request about a trial, and returns the payload of its answer.
    async fn ask(
        &mut self,
        link: &mut impl Exchange,
        message_types: MessageTypes,
        (trial_id, step): (&str, u64),
        content: Vec<(Key, Value)>,
    ) -> Result<Value, CallError> {
        let message_id = format!("{}-{}", self.evaluation_id, self.messages + 1);
        let ids = [&*message_id, &self.evaluation_id];
        let request = request(message_types, ids, (Some(trial_id), step), content);
        let answer = link.ask(request).await?;
        self.messages += 1;
        payload(&answer, message_types, &message_id).map_err(CallError::Wrong)
    }

    /// Says something about a trial as a whole.
    async fn tell(
        &mut self,
        link: &mut impl Exchange,
        message_types: MessageTypes,
        trial_id: &str,
    ) -> Result<(), CallError> {
        let payload = vec![(Key::from("trial_id"), trial_id.into())];
        self.ask(link, message_types, (trial_id, 0), payload)
            .await?;
        Ok(())
    }

    /// Tells the server which episodes are over.
    async fn end_trials(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        while let Some(id) = self.over.first().cloned() {
            self.tell(link, TRIAL_END, &id).await?;
            self.over.remove(0);
        }
        Ok(())
    }

    /// Returns how many actions of a chunk are executed at most.
    fn chunk_length(&self) -> usize {
        self.given
            .action_chunk_length
            .map_or(MOST_ACTIONS, usize::from)
    }

    /// Returns an observation in XPolicyLab's format v1.0.
    fn observation(&self, env: EnvIndex, seen: &Observation) -> Result<Value, RowError> {
        let words = seen::instruction(seen, self.given.language_instruction.as_deref())?;
        let frequency = Value::from(u64::from(self.control_hz));
        let mut observation = Value::map([
            ("data_format_version", DATA_FORMAT.into()),
            ("instruction", words.into()),
            ("env_idx", Value::from(env.0 as u64)),
            ("vision", Value::Map(Vec::new())),
            ("state", Value::Map(Vec::new())),
            ("additional_info", Value::map([("frequency", frequency)])),
        ]);
        for (path, value) in inputs(&self.wiring, seen, shown)? {
            insert(&mut observation, path, value);
        }
        Ok(observation)
    }
}

impl ClientCodec for XpolicylabClient {
    const TRANSPORT: Transport = Transport::Websocket("Bearer");
    const STEPS: [&'static str; 3] = ["connecting", "reset", "infer"];

    async fn greet(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        let id = fresh_id().map_err(CallError::Wrong)?;
        let hello = request(HELLO, [&id, &id], (None, 0), Vec::new());
        let answer = link.ask(hello).await?;
        let answer = payload(&answer, HELLO, &id);
        answer.map_err(|reason| CallError::Wrong(format!("hello: {reason}")))?;
        Ok(())
    }

    async fn begin(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<(), CallError> {
        let begins = |row: &&&PolicyRow| row.inference == 0;
        for row in rows.iter().filter(begins) {
            let over = self
                .trials
                .remove(&row.env)
                .filter(|id| *id != trial_of(row));
            self.over.extend(over);
        }
        self.end_trials(link).await?;
        for row in rows.iter().filter(begins) {
            let id = trial_of(row);
            self.tell(link, RESET, &id).await?;
            self.trials.insert(row.env, id);
        }
        Ok(())
    }

    async fn infer(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<Vec<Chunk>, CallError> {
        let mut chunks = Vec::with_capacity(rows.len());
        for row in rows {
            let observation = self.observation(row.env, row.now())?;
            let payload = vec![(Key::from("observation"), observation)];
            let trial = (&*trial_of(row), row.inference);
            let answer = self.ask(link, INFER, trial, payload).await?;
            let (keys, most) = (&self.action_keys, self.chunk_length());
            let chunk = read_chunk(&answer, keys, self.action_dim, most);
            chunks.push(chunk.map_err(CallError::Wrong)?);
        }
        Ok(chunks)
    }

    /// Tells the server that the last episodes are over.
    async fn bye(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        self.over
            .extend(std::mem::take(&mut self.trials).into_values());
        self.end_trials(link).await
    }

    fn facts(&self) -> PolicyFacts {
        PolicyFacts {
            horizon: self.chunk_length(),
            needs_video: self.wiring.sees(),
            reported: vec![("action_keys", self.action_keys.clone().into())],
            ..PolicyFacts::default()
        }
    }
}

/// Returns an identifier that no other client has, or why there is none.
fn fresh_id() -> Result<String, String> {
    jobs::random::hex::<ID_BYTES>().map_err(|err| format!("/dev/urandom cannot be read: {err}"))
}

/// Returns the name of a row's episode.
fn trial_of(row: &PolicyRow) -> String {
    format!("episode-{}", row.episode)
}

fn shown(frame: &Frame) -> Value {
    let color = picture::whole(frame);
    let edges = color.shape()[..2].iter();
    let shape: Vec<Value> = edges.map(|edge| Value::from(*edge as u64)).collect();
    Value::map([("color", color.into()), ("shape", shape.into())])
}

/// Inserts a value into nested maps, at a path such as `state/mobile/base_pose`.
fn insert(map: &mut Value, path: &str, value: Value) {
    let Value::Map(members) = map else {
        return;
    };
    let Some((first, rest)) = path.split_once('/') else {
        members.push((Key::from(path), value));
        return;
    };
    let position = members.iter().position(|(key, _)| key.is(first));
    let position = position.unwrap_or_else(|| {
        members.push((Key::from(first), Value::Map(Vec::new())));
        members.len() - 1
    });
    insert(&mut members[position].1, rest, value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_given_is_as_in_xpolicylab() {
        let keys = |given: serde_json::Value| {
            let given = jobs::policies::read(given.as_object().unwrap()).unwrap();
            action_keys(&given).unwrap()
        };
        assert_eq!(keys(json!({})), ["arm_joint_state", "ee_joint_state"]);
        assert_eq!(keys(json!({"action_keys": "ee_pose"})), ["ee_pose"]);
    }

    #[test]
    fn a_path_becomes_nested_maps() {
        let mut state = Value::Map(Vec::new());
        insert(&mut state, "mobile/base_pose", Value::Int(1));
        insert(&mut state, "mobile/base_twist", Value::Int(2));
        insert(&mut state, "ee_pose", Value::Int(3));
        let mobile = Value::map([("base_pose", Value::Int(1)), ("base_twist", Value::Int(2))]);
        let wanted = Value::map([("mobile", mobile), ("ee_pose", Value::Int(3))]);
        assert_eq!(state, wanted);
    }
}
