//! The openpi policy: one request per environment, over a pool of connections.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::env::{EnvSpec, Observation};
use crate::policy::openpi::picture;
use crate::policy::openpi::settings::OpenpiSettings;
use crate::policy::remote::{Caller, Lifeline, WebsocketConnection};
use crate::policy::seen;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer};
use jobs::policies::PolicyType;
use jobs::wiring::{Given, Sides, Source, Wiring};
use wire::{Array, Dialect, Key, Value};

/// A server's policy that acts in one environment.
#[derive(Debug)]
pub struct Openpi {
    settings: OpenpiSettings,
    wiring: Wiring,
    lifeline: Lifeline,
    /// Callers by connection index, created on first use.
    callers: BTreeMap<usize, Caller<WebsocketConnection>>,
    action_dim: usize,
}

impl Openpi {
    /// Connects the server's keys to the environment, and the policy to the server.
    ///
    /// # Errors
    /// Returns an error if both sides do not fit together, and if the server is unreachable.
    pub fn new(
        settings: OpenpiSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let sides = Sides {
            policy: PolicyType::Pi0Remote.name(),
            face: env,
        };
        let given = Given {
            mapping: settings.mapping.as_ref(),
            cameras: settings.cameras.as_deref(),
            ..Given::default()
        };
        let wiring = settings.embodiment.connect(sides, &given)?;
        let mut first = Caller::new(&settings.server, lifeline);
        first.meet()?;
        Ok(Self {
            wiring,
            lifeline: lifeline.clone(),
            callers: BTreeMap::from([(0, first)]),
            action_dim: env.action.names.len(),
            settings,
        })
    }

    /// Returns the request `{name: picture or numbers, …, "prompt": words}`.
    fn request(&self, observation: &Observation) -> Result<Bytes, PolicyError> {
        let mut members = Vec::new();
        for (key, source) in self.wiring.inputs() {
            let value = match source {
                Source::Camera(camera) => self.picture(camera, observation)?,
                Source::States(parts) => {
                    let numbers = seen::numbers(parts, observation)?;
                    Array::of_f32(&[numbers.len()], &numbers).into()
                }
            };
            members.push((Key::from(key), value));
        }
        let words = seen::instruction(observation, self.settings.language.as_deref())?;
        members.push((Key::from("prompt"), words.into()));
        Ok(wire::write(&Value::Map(members), Dialect::Openpi).into())
    }

    fn picture(&self, camera: &str, observation: &Observation) -> Result<Value, PolicyError> {
        let frame = seen::frame(camera, observation)?;
        let [height, width] = self.settings.picture;
        let bytes = picture::resize_with_pad(frame, self.settings.picture);
        Ok(Array::of_u8(&[height, width, 3], bytes.into()).into())
    }

    fn chunk(&self, answer: &Bytes) -> Result<Chunk, PolicyError> {
        chunk(answer, self.settings.chunk_length, self.action_dim)
            .map_err(|reason| self.settings.server.refusal(format!("infer: {reason}")))
    }
}

/// Returns the actions of an answer that are used.
///
/// # Errors
/// Says what is wrong with the answer.
fn chunk(answer: &Bytes, horizon: usize, dim: usize) -> Result<Chunk, String> {
    let answer = wire::read(answer).map_err(|err| format!("its answer cannot be read: {err}"))?;
    let answer = answer.value;
    if let Some(error) = answer.get("error") {
        let text = error.as_text().unwrap_or_default();
        return Err(format!("it answers with the error `{text}`"));
    }
    let actions = answer
        .get("actions")
        .and_then(Value::as_array)
        .ok_or("its answer has no array `actions`")?;
    match *actions.shape() {
        [steps, width] if steps >= horizon && width == dim => {
            Ok(Chunk::new(dim, actions.to_f32()[..horizon * dim].to_vec()))
        }
        ref found => Err(format!(
            "its actions are {found:?}, expected [{horizon} or more, {dim}]"
        )),
    }
}

impl PolicySettings for OpenpiSettings {
    fn chunk_length(&self) -> Option<usize> {
        // The policy cuts its chunks itself.
        None
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(Openpi::new(*self, context.env, context.lifeline)?))
    }
}

impl Policy for Openpi {
    fn facts(&self) -> PolicyFacts {
        let settings = &self.settings;
        PolicyFacts {
            horizon: settings.chunk_length,
            needs_video: self.wiring.sees(),
            reported: vec![
                ("policy_path", settings.server.to_string().into()),
                ("policy_variant", settings.variant.clone().into()),
                (
                    "openpi_embodiment_adapter",
                    settings.embodiment.name().into(),
                ),
                ("picture_size", settings.picture.to_vec().into()),
            ],
            notes: settings.notes.clone(),
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let answers = self.ask_all(rows);
        if answers.is_err() {
            // Close the connections, so that outstanding answers are discarded.
            self.callers.clear();
        }
        answers
    }
}

impl Openpi {
    fn ask_all(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        let mut answers: Vec<Option<RowAnswer>> = rows.iter().map(|_| None).collect();
        let mut waiting: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate().rev() {
            waiting
                .entry(row.env.0 % self.settings.connections)
                .or_default()
                .push(index);
        }
        // Every connection has at most one outstanding request, so a server that is slow to read
        // cannot deadlock with us.
        while waiting.values().any(|rows| !rows.is_empty()) {
            let mut round = Vec::new();
            for (connection, waiting) in &mut waiting {
                let Some(index) = waiting.pop() else {
                    continue;
                };
                match self.request(rows[index].now()) {
                    Ok(request) => round.push((*connection, index, request)),
                    Err(err) => answers[index] = Some(RowAnswer::of(Err(err))?),
                }
            }
            for (connection, _, request) in &round {
                let new = || Caller::new(&self.settings.server, &self.lifeline);
                self.callers
                    .entry(*connection)
                    .or_insert_with(new)
                    .begin(request);
            }
            for (connection, index, request) in round {
                let Some(caller) = self.callers.get_mut(&connection) else {
                    continue;
                };
                let answer = caller.finish("infer", &request);
                let chunk = answer.and_then(|answer| self.chunk(&answer));
                answers[index] = Some(RowAnswer::of(chunk)?);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(value: &Value) -> Bytes {
        wire::write(value, Dialect::Openpi).into()
    }

    fn actions(shape: &[usize]) -> Bytes {
        let numbers: Vec<f32> = (0..shape.iter().product::<usize>())
            .map(|number| number as f32)
            .collect();
        answer(&Value::map([(
            "actions",
            Array::of_f32(shape, &numbers).into(),
        )]))
    }

    #[test]
    fn of_an_answer_as_many_actions_are_taken_as_are_wanted() {
        assert_eq!(
            chunk(&actions(&[4, 2]), 3, 2).unwrap(),
            Chunk::new(2, vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
        );
    }

    #[test]
    fn an_answer_that_does_not_fit_is_refused_with_both_sides() {
        let error = answer(&Value::map([("error", "no such key".into())]));
        let nothing = answer(&Value::map([("action", Value::Nil)]));
        for (answer, reason) in [
            (
                actions(&[2, 2]),
                "its actions are [2, 2], expected [3 or more, 2]",
            ),
            (
                actions(&[4, 8]),
                "its actions are [4, 8], expected [3 or more, 2]",
            ),
            (
                actions(&[1, 4, 2]),
                "its actions are [1, 4, 2], expected [3 or more, 2]",
            ),
            (nothing, "its answer has no array `actions`"),
            (error, "it answers with the error `no such key`"),
            (Bytes::from_static(b"{}"), "its answer cannot be read: "),
        ] {
            let text = chunk(&answer, 3, 2).unwrap_err();
            assert!(text.starts_with(reason), "{text}");
        }
    }
}
