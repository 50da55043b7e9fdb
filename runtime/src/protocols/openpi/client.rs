//! The client's half: one request per environment, over a pool of connections.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jobs::format::word;
use jobs::policies::{Pi0, Pi0Adapter, PolicyType, Server};
use jobs::wiring::{Given, Sides, Wiring};
use serde_json::Map;
use wire::{Dialect, Key, Value};

use crate::env::{EnvIndex, EnvSpec, Frame, Observation};
use crate::policy::remote::PolicyServer;
use crate::policy::{Chunk, PolicyError, PolicyFacts, PolicyRow, RowError, argument, seen};
use crate::protocols::{
    CallError, ClientCodec, Exchange, OnServer, Transport, inputs, picture, read,
};

/// Height and width of the pictures that openpi's models use.
const PICTURE: [usize; 2] = [224, 224];

impl OnServer for Pi0 {
    type Codec = OpenpiClient;
    const PORT: u16 = 8000;
    /// openpi's own client waits forever; the first inference of a server compiles its network.
    const TIMEOUT: Duration = Duration::from_secs(120);

    fn server(&self) -> (&Server, Option<&PathBuf>) {
        self.websocket.place()
    }

    fn check(&self) -> Result<Option<usize>, PolicyError> {
        chunk_length(self)?;
        let is_custom = self.openpi_embodiment_adapter == Pi0Adapter::Custom;
        if is_custom && self.observation_mapping.as_ref().is_none_or(Map::is_empty) {
            let wanted = "expected the server's names with openpi_embodiment_adapter custom";
            return Err(argument("observation_mapping", "missing", wanted));
        }
        Ok(None)
    }

    fn client(self, _: &PolicyServer, env: &EnvSpec) -> Result<OpenpiClient, PolicyError> {
        let sides = Sides::new(PolicyType::Pi0Remote, env);
        let cameras = self.pov_cam_name_sim.as_ref();
        let given = Given {
            mapping: self.observation_mapping.as_ref(),
            cameras: cameras.map(|names| &names.0[..]),
            ..Given::default()
        };
        Ok(OpenpiClient {
            wiring: self.openpi_embodiment_adapter.connect(sides, &given)?,
            chunk_length: chunk_length(&self)?,
            picture: self.target_image_size.map_or(PICTURE, |size| size.0),
            action_dim: env.action.names.len(),
            given: Arc::new(self),
        })
    }
}

/// Returns how many actions of a chunk are executed: by default `open_loop_horizon` of Arena's
/// adapter for DROID, `replan_steps` of openpi's LIBERO example.
fn chunk_length(given: &Pi0) -> Result<usize, PolicyError> {
    let variant = given.policy_variant.as_str();
    if let Some(length) = given.action_chunk_length {
        return Ok(length.into());
    }
    match (given.openpi_embodiment_adapter, variant) {
        (Pi0Adapter::Droid, "pi05") => Ok(15),
        (Pi0Adapter::Droid, "pi0" | "pi0_fast") => Ok(10),
        (Pi0Adapter::Libero, _) => Ok(5),
        (Pi0Adapter::Droid, _) => {
            let wanted = "expected one of pi05, pi0, pi0_fast, or action_chunk_length";
            Err(argument("policy_variant", &format!("{variant:?}"), wanted))
        }
        (Pi0Adapter::Custom, _) => {
            let wanted =
                "expected the number of actions to execute with openpi_embodiment_adapter custom";
            Err(argument("action_chunk_length", "missing", wanted))
        }
    }
}

/// What a client says to an openpi server. The protocol has no episodes.
#[derive(Clone)]
pub(crate) struct OpenpiClient {
    given: Arc<Pi0>,
    wiring: Wiring,
    chunk_length: usize,
    /// Height and width of the pictures that are sent, in pixels.
    picture: [usize; 2],
    action_dim: usize,
}

impl OpenpiClient {
    /// Returns the request `{name: picture or numbers, …, "prompt": words}`.
    fn request(&self, observation: &Observation) -> Result<Bytes, RowError> {
        let picture = |frame: &Frame| picture::padded(frame, self.picture).into();
        let members = inputs(&self.wiring, observation, picture)?.into_iter();
        let mut members: Vec<_> = members
            .map(|(key, value)| (Key::from(key), value))
            .collect();
        let words = seen::instruction(observation, self.given.language_instruction.as_deref())?;
        members.push((Key::from("prompt"), words.into()));
        Ok(wire::write(&Value::Map(members), Dialect::Openpi).into())
    }
}

impl ClientCodec for OpenpiClient {
    const TRANSPORT: Transport = Transport::Websocket("Api-Key");
    const STEPS: [&'static str; 3] = ["connecting", "infer", "infer"];

    fn lane(&self, env: EnvIndex) -> usize {
        env.0 % usize::from(self.given.remote_connections)
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
            let chunk = chunk(&answer, self.chunk_length, self.action_dim);
            chunks.push(chunk.map_err(CallError::Wrong)?);
        }
        Ok(chunks)
    }

    fn facts(&self) -> PolicyFacts {
        let adapter = word(self.given.openpi_embodiment_adapter);
        PolicyFacts {
            horizon: self.chunk_length,
            needs_video: self.wiring.sees(),
            reported: vec![
                ("policy_variant", self.given.policy_variant.clone().into()),
                ("openpi_embodiment_adapter", adapter.into()),
                ("picture_size", self.picture.to_vec().into()),
            ],
            ..PolicyFacts::default()
        }
    }
}

/// Returns the actions of an answer that are used.
///
/// # Errors
/// Says what is wrong with the answer.
fn chunk(answer: &Bytes, horizon: usize, dim: usize) -> Result<Chunk, String> {
    let answer = read(answer)?;
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
    use serde_json::json;
    use wire::Array;

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
    fn a_chunk_is_as_long_as_the_server_s_policy_wants_it() {
        for (given, length) in [
            (json!({}), 15),
            (json!({"policy_variant": "pi0_fast"}), 10),
            (json!({"openpi_embodiment_adapter": "libero"}), 5),
            (
                json!({"policy_variant": "mine", "action_chunk_length": 3}),
                3,
            ),
        ] {
            let given: Pi0 = jobs::policies::read(given.as_object().unwrap()).unwrap();
            assert_eq!(chunk_length(&given).unwrap(), length);
        }
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
