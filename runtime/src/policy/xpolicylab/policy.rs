//! The policy: says when episodes begin and end, and asks for one environment after the other.

use std::collections::BTreeMap;

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::remote::{Caller, Lifeline};
use crate::policy::seen;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::xpolicylab::actions::read_chunk;
use crate::policy::xpolicylab::connection::{XpolicylabConnection, fresh_id};
use crate::policy::xpolicylab::frame::{self, MessageType, RequestFrame};
use crate::policy::xpolicylab::settings::XpolicylabSettings;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer};
use jobs::policies::PolicyType;
use jobs::wiring::{Sides, Source, Wiring, xpolicylab};
use wire::{Array, Key, Value};

/// Version of the format of observations that are sent.
const DATA_FORMAT: &str = "v1.0";

/// A server's policy that acts in one environment.
#[derive(Debug)]
pub struct Xpolicylab {
    settings: XpolicylabSettings,
    wiring: Wiring,
    caller: Caller<XpolicylabConnection>,
    lifeline: Lifeline,
    action_dim: usize,
    control_hz: u32,
    /// Names this client; the start of each `message_id`.
    evaluation_id: String,
    messages: u64,
    /// The episodes that the server was told of, and that are not over.
    trials: BTreeMap<EnvIndex, String>,
    /// Those that are over, which the server was not told.
    over: Vec<String>,
}

impl Xpolicylab {
    /// Connects the parts of an observation to the environment, and the policy to the server.
    ///
    /// # Errors
    /// Returns an error if both sides do not fit together, and if the server is unreachable.
    pub fn new(
        settings: XpolicylabSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let sides = Sides {
            policy: PolicyType::XpolicylabRemote.name(),
            face: env,
        };
        let wiring = xpolicylab(sides, settings.mapping.as_ref())?;
        let evaluation_id = fresh_id().map_err(|reason| settings.server.error(reason))?;
        let mut caller = Caller::new(&settings.server, lifeline);
        caller.meet()?;
        Ok(Self {
            settings,
            wiring,
            caller,
            lifeline: lifeline.clone(),
            action_dim: env.action.names.len(),
            control_hz: env.control_hz,
            evaluation_id,
            messages: 0,
            trials: BTreeMap::new(),
            over: Vec::new(),
        })
    }

    /// Sends a request about a trial, and returns the payload of its answer.
    fn ask(
        &mut self,
        message_type: MessageType,
        trial_id: &str,
        step: u64,
        payload: Vec<(Key, Value)>,
    ) -> Result<Value, PolicyError> {
        let message_id = self.next_id();
        let request = RequestFrame {
            message_type,
            message_id: &message_id,
            evaluation_id: &self.evaluation_id,
            trial_id: Some(trial_id),
            step,
        };
        let what = message_type.name();
        let answer = self.caller.call(what, &request.with(payload))?;
        frame::payload(&answer, message_type, &message_id)
            .map_err(|reason| self.settings.server.refusal(format!("{what}: {reason}")))
    }

    /// Closes the connection, so that an outstanding answer is discarded.
    fn reconnect(&mut self) {
        self.caller = Caller::new(&self.settings.server, &self.lifeline);
    }

    fn next_id(&mut self) -> String {
        self.messages += 1;
        format!("{}-{}", self.evaluation_id, self.messages)
    }

    /// Tells the server which episodes are over and which begin.
    fn begin_trials(&mut self, rows: &[PolicyRow]) -> Result<(), PolicyError> {
        let begun = || rows.iter().filter(|row| row.inference == 0);
        for row in begun() {
            if let Some(over) = self.trials.remove(&row.env) {
                self.over.push(over);
            }
        }
        while let Some(id) = self.over.first().cloned() {
            self.ask(MessageType::TrialEnd, &id, 0, payload_about(&id))?;
            self.over.remove(0);
        }
        for row in begun() {
            let id = trial_of(row);
            self.ask(MessageType::Reset, &id, 0, payload_about(&id))?;
            self.trials.insert(row.env, id);
        }
        Ok(())
    }

    fn infer(&mut self, row: &PolicyRow) -> Result<Chunk, PolicyError> {
        let observation = self.observation(row.env, row.now())?;
        let payload = vec![(Key::from("observation"), observation)];
        let id = trial_of(row);
        let answer = self.ask(MessageType::Infer, &id, row.inference, payload)?;
        let most = self.settings.chunk_length;
        read_chunk(&answer, &self.settings.action_keys, self.action_dim, most)
            .map_err(|reason| self.settings.server.refusal(format!("infer: {reason}")))
    }

    /// Returns an observation in XPolicyLab's format v1.0.
    fn observation(&self, env: EnvIndex, seen: &Observation) -> Result<Value, PolicyError> {
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

impl Drop for Xpolicylab {
    /// Tells the server that the last episodes are over, if it is still there.
    fn drop(&mut self) {
        let mut over = std::mem::take(&mut self.over);
        over.extend(std::mem::take(&mut self.trials).into_values());
        for id in over {
            let message_id = self.next_id();
            let request = RequestFrame {
                message_type: MessageType::TrialEnd,
                message_id: &message_id,
                evaluation_id: &self.evaluation_id,
                trial_id: Some(&id),
                step: 0,
            };
            if !self.caller.farewell(&request.with(payload_about(&id))) {
                return;
            }
        }
    }
}

/// Returns the name of a row's episode.
fn trial_of(row: &PolicyRow) -> String {
    format!("episode-{}", row.episode)
}

/// Returns what a message says that is about a trial as a whole.
fn payload_about(trial_id: &str) -> Vec<(Key, Value)> {
    vec![(Key::from("trial_id"), trial_id.into())]
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

impl PolicySettings for XpolicylabSettings {
    fn chunk_length(&self) -> Option<usize> {
        // The policy cuts its chunks itself.
        None
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        let policy = Xpolicylab::new(*self, context.env, context.lifeline)?;
        Ok(Box::new(policy))
    }
}

impl Policy for Xpolicylab {
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

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let begun = self.begin_trials(rows);
        if begun.is_err() {
            self.reconnect();
        }
        begun?;
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            let chunk = self.infer(row);
            if chunk.is_err() {
                self.reconnect();
            }
            answers.push(RowAnswer::of(chunk)?);
        }
        Ok(answers)
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
