//! The client's half of openpi's protocol: one request per environment, over a pool of connections.

use std::sync::Arc;

use bytes::Bytes;
use jobs::policies::PolicyType;
use jobs::wiring::{Given, Sides, Source, Wiring};
use wire::{Array, Dialect, Key, Value};

use crate::env::{EnvIndex, EnvSpec, Observation};
use crate::policy::config::MakeContext;
use crate::policy::openpi::picture;
use crate::policy::openpi::settings::OpenpiSettings;
use crate::policy::remote::{CallError, ClientCodec, Exchange, RemotePolicy, Transport};
use crate::policy::seen;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowError};

/// What a client says to an openpi server. The protocol has no episodes.
#[derive(Clone)]
pub(super) struct OpenpiClient {
    settings: Arc<OpenpiSettings>,
    wiring: Wiring,
    action_dim: usize,
}

impl OpenpiClient {
    /// Connects the server's keys to the environment.
    ///
    /// # Errors
    /// Refuses an environment that does not fit together.
    pub(super) fn new(settings: OpenpiSettings, env: &EnvSpec) -> Result<Self, PolicyError> {
        let sides = Sides {
            policy: PolicyType::Pi0Remote.name(),
            face: env,
        };
        let given = Given {
            mapping: settings.mapping.as_ref(),
            cameras: settings.cameras.as_deref(),
            ..Given::default()
        };
        Ok(Self {
            wiring: settings.embodiment.connect(sides, &given)?,
            settings: Arc::new(settings),
            action_dim: env.action.names.len(),
        })
    }

    /// Returns the request `{name: picture or numbers, …, "prompt": words}`.
    fn request(&self, observation: &Observation) -> Result<Bytes, RowError> {
        let mut members = Vec::new();
        for (key, source) in self.wiring.inputs() {
            let value = match source {
                Source::Camera(camera) => {
                    let frame = seen::frame(camera, observation)?;
                    let [height, width] = self.settings.picture;
                    let bytes = picture::resize_with_pad(frame, [height, width]);
                    Array::of_u8(&[height, width, 3], bytes.into()).into()
                }
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
}

impl ClientCodec for OpenpiClient {
    const TRANSPORT: Transport = Transport::Websocket("Api-Key");
    const STEPS: [&'static str; 3] = ["connecting", "infer", "infer"];

    fn lane(&self, env: EnvIndex) -> usize {
        env.0 % self.settings.connections
    }

    fn another(&self) -> Self {
        self.clone()
    }

    async fn greet(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        // The server's metadata: a map without a fixed structure.
        link.receive().await.map(drop)
    }

    async fn infer(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<Vec<Chunk>, CallError> {
        let mut chunks = Vec::with_capacity(rows.len());
        for row in rows {
            let answer = link.ask(self.request(row.now())?).await?;
            let chunk = chunk(&answer, self.settings.chunk_length, self.action_dim);
            chunks.push(chunk.map_err(CallError::Wrong)?);
        }
        Ok(chunks)
    }

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
}

impl OpenpiSettings {
    /// Connects to the server.
    pub(in crate::policy) fn make(
        self,
        context: MakeContext<'_>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let server = self.server.clone();
        let client = OpenpiClient::new(self, context.env()?)?;
        RemotePolicy::open(client, &server, context.lifeline)
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
