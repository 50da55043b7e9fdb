//! The client's half of XPolicyLab's protocol: says when episodes begin and end, and asks for one
//! environment after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobs::policies::PolicyType;
use jobs::wiring::{Sides, Source, Wiring, xpolicylab};
use wire::{Array, Key, Value};

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::config::MakeContext;
use crate::policy::remote::{CallError, ClientCodec, Exchange, RemotePolicy, Transport};
use crate::policy::seen;
use crate::policy::xpolicylab::actions::read_chunk;
use crate::policy::xpolicylab::frame::{self, MessageType, RequestFrame};
use crate::policy::xpolicylab::settings::XpolicylabSettings;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowError};

/// Version of the format of observations that are sent.
const DATA_FORMAT: &str = "v1.0";

/// Number of random bytes in an identifier.
const ID_BYTES: usize = 16;

/// What a client says to a server of XPolicyLab. The protocol has no tokens; one is sent as
/// `Authorization: Bearer …`, for a proxy in front of the server.
pub(super) struct XpolicylabClient {
    settings: Arc<XpolicylabSettings>,
    wiring: Wiring,
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
    /// Connects the parts of an observation to the environment.
    ///
    /// # Errors
    /// Refuses an environment that does not fit together.
    pub(super) fn new(settings: XpolicylabSettings, env: &EnvSpec) -> Result<Self, PolicyError> {
        let sides = Sides {
            policy: PolicyType::XpolicylabRemote.name(),
            face: env,
        };
        let wiring = xpolicylab(sides, settings.mapping.as_ref())?;
        Ok(Self {
            evaluation_id: fresh_id().map_err(|reason| settings.server.error(reason))?,
            settings: Arc::new(settings),
            wiring,
            action_dim: env.action.names.len(),
            control_hz: env.control_hz,
            messages: 0,
            trials: BTreeMap::new(),
            over: Vec::new(),
        })
    }

    /// Sends a request about a trial, and returns the payload of its answer.
    async fn ask(
        &mut self,
        link: &mut impl Exchange,
        message_type: MessageType,
        (trial_id, step): (&str, u64),
        payload: Vec<(Key, Value)>,
    ) -> Result<Value, CallError> {
        let message_id = format!("{}-{}", self.evaluation_id, self.messages + 1);
        let request = RequestFrame {
            message_type,
            message_id: &message_id,
            evaluation_id: &self.evaluation_id,
            trial_id: Some(trial_id),
            step,
        };
        let answer = link.ask(request.with(payload)).await?;
        self.messages += 1;
        frame::payload(&answer, message_type, &message_id).map_err(CallError::Wrong)
    }

    /// Says something about a trial as a whole.
    async fn tell(
        &mut self,
        link: &mut impl Exchange,
        message_type: MessageType,
        trial_id: &str,
    ) -> Result<(), CallError> {
        let payload = vec![(Key::from("trial_id"), trial_id.into())];
        self.ask(link, message_type, (trial_id, 0), payload).await?;
        Ok(())
    }

    /// Tells the server which episodes are over.
    async fn end_trials(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        while let Some(id) = self.over.first().cloned() {
            self.tell(link, MessageType::TrialEnd, &id).await?;
            self.over.remove(0);
        }
        Ok(())
    }

    /// Returns an observation in XPolicyLab's format v1.0.
    fn observation(&self, env: EnvIndex, seen: &Observation) -> Result<Value, RowError> {
        let words = seen::instruction(seen, self.settings.language.as_deref())?;
        let frequency = Value::from(u64::from(self.control_hz));
        let mut observation = Value::map([
            ("data_format_version", DATA_FORMAT.into()),
            ("instruction", words.into()),
            ("env_idx", Value::from(env.0 as u64)),
            ("vision", Value::Map(Vec::new())),
            ("state", Value::Map(Vec::new())),
            ("additional_info", Value::map([("frequency", frequency)])),
        ]);
        for (path, source) in self.wiring.inputs() {
            let value = match source {
                Source::Camera(camera) => picture(seen::frame(camera, seen)?),
                Source::States(parts) => {
                    let numbers = seen::numbers(parts, seen)?;
                    Array::of_f32(&[numbers.len()], &numbers).into()
                }
            };
            insert(&mut observation, path, value);
        }
        Ok(observation)
    }
}

impl ClientCodec for XpolicylabClient {
    const TRANSPORT: Transport = Transport::Websocket("Bearer");
    const STEPS: [&'static str; 3] = ["connecting", "reset", "infer"];

    fn lane(&self, _: EnvIndex) -> usize {
        0
    }

    fn another(&self) -> Self {
        Self {
            settings: Arc::clone(&self.settings),
            wiring: self.wiring.clone(),
            evaluation_id: self.evaluation_id.clone(),
            trials: BTreeMap::new(),
            over: Vec::new(),
            ..*self
        }
    }

    async fn greet(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        let id = fresh_id().map_err(CallError::Wrong)?;
        let hello = RequestFrame {
            message_type: MessageType::Hello,
            message_id: &id,
            evaluation_id: &id,
            trial_id: None,
            step: 0,
        };
        let answer = link.ask(hello.with(Vec::new())).await?;
        frame::payload(&answer, MessageType::Hello, &id)
            .map_err(|reason| CallError::Wrong(format!("hello: {reason}")))?;
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
            self.tell(link, MessageType::Reset, &id).await?;
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
            let answer = self.ask(link, MessageType::Infer, trial, payload).await?;
            let (keys, most) = (&self.settings.action_keys, self.settings.chunk_length);
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
            horizon: self.settings.chunk_length,
            needs_video: self.wiring.sees(),
            reported: vec![
                ("policy_path", self.settings.server.to_string().into()),
                ("action_keys", self.settings.action_keys.clone().into()),
            ],
            notes: self.settings.notes.clone(),
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

fn picture(frame: &Frame) -> Value {
    let (height, width) = (frame.height as usize, frame.width as usize);
    let color = Array::of_u8(&[height, width, 3], frame.rgb.clone());
    let shape = vec![Value::from(height as u64), Value::from(width as u64)];
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

impl XpolicylabSettings {
    /// Connects to the server.
    pub(in crate::policy) fn make(
        self,
        context: MakeContext<'_>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let server = self.server.clone();
        let client = XpolicylabClient::new(self, context.env()?)?;
        RemotePolicy::open(client, &server, context.lifeline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_becomes_nested_maps() {
        let mut state = Value::Map(Vec::new());
        insert(&mut state, "mobile/base_pose", 1i64.into());
        insert(&mut state, "mobile/base_twist", 2i64.into());
        insert(&mut state, "ee_pose", 3i64.into());
        let mobile = Value::map([("base_pose", 1i64.into()), ("base_twist", 2i64.into())]);
        let wanted = Value::map([("mobile", mobile), ("ee_pose", 3i64.into())]);
        assert_eq!(state, wanted);
    }
}
