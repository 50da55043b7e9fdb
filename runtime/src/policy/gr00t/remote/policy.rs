//! The remote GR00T policy: sends observations of many environments in one request and reads the
//! chunks of actions from the answer.

use std::path::PathBuf;

use bytes::Bytes;
use serde_json::Value as Json;

use crate::env::{EnvSpec, Frame};
use crate::policy::answers::each;
use crate::policy::argument;
use crate::policy::gr00t::actions;
use crate::policy::gr00t::remote::protocol::{self, RequestInputs, ServerModalities};
use crate::policy::gr00t::remote::settings::RemoteSettings;
use crate::policy::remote::{Caller, Lifeline, Req};
use crate::policy::seen;
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::{
    Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, RowError, looks_back,
};
use gr00t::processor::KeyActions;
use jobs::policies::PolicyType;
use jobs::wiring::{ActionPlaces, Sides, Wiring};
use wire::Value;

/// A server's policy that acts in one environment.
#[derive(Debug)]
pub struct Gr00tRemote {
    settings: RemoteSettings,
    caller: Caller<Req>,
    modalities: ServerModalities,
    env: EnvSpec,
    wiring: Wiring,
    /// Where the actions go, once the first answer has told their widths.
    places: Option<ActionPlaces>,
    horizon: usize,
}

impl Gr00tRemote {
    /// Asks the server for its modalities and connects them to the environment.
    ///
    /// # Errors
    /// Returns an error if the server is unreachable or refuses, and if it and the environment do
    /// not fit together.
    pub fn new(
        settings: RemoteSettings,
        env: &EnvSpec,
        lifeline: &Lifeline,
    ) -> Result<Self, PolicyError> {
        let mut caller = Caller::new(&settings.server, lifeline);
        let what = "get_modality_config";
        let token = settings.server.token.as_ref().map(|token| token.0.as_str());
        let request = wire::write(&protocol::request(what, None, token), wire::Dialect::Kind);
        let answer = caller.call(what, &request.into())?;
        let wrong = |reason: String| settings.server.error(format!("{what}: {reason}"));
        let modalities =
            ServerModalities::read(&protocol::answer(&answer).map_err(wrong)?).map_err(wrong)?;
        // Nothing tells the widths of its states.
        let states = modalities.state.keys.iter().map(|key| (key.as_str(), None));
        let given = (settings.cameras.as_deref(), settings.joints.as_ref());
        let wiring = Wiring::checkpoint(sides(env), &modalities.video.keys, states, given)?;
        let has = modalities.action.deltas.len();
        let horizon = settings.action_horizon.unwrap_or(has);
        if horizon > has {
            let wanted = format!("expected at most the {has} steps of {}", settings.server);
            return Err(argument("action_horizon", &horizon.to_string(), &wanted));
        }
        Ok(Self {
            env: env.clone(),
            places: None,
            settings,
            caller,
            modalities,
            wiring,
            horizon,
        })
    }

    fn ask(&mut self, endpoint: &str, data: Value) -> Result<Value, PolicyError> {
        let token = self
            .settings
            .server
            .token
            .as_ref()
            .map(|token| token.0.as_str());
        let request: Bytes = wire::write(
            &protocol::request(endpoint, Some(data), token),
            self.modalities.dialect,
        )
        .into();
        let answer = self.caller.call(endpoint, &request)?;
        protocol::answer(&answer).map_err(|reason| self.refused(endpoint, &reason))
    }

    fn refused(&self, endpoint: &str, reason: &str) -> PolicyError {
        self.settings
            .server
            .refusal(format!("{endpoint}: {reason}"))
    }

    /// Returns the noise seeds, one per row: the same as for a policy in this process.
    fn options(&self, rows: &[PolicyRow]) -> Value {
        let Some(own) = self.settings.seed else {
            return Value::Nil;
        };
        let seeds = rows.iter().map(|row| Value::from(row.noise_seed(own)));
        Value::map([("noise_seeds", seeds.collect::<Vec<_>>().into())])
    }

    fn observation(&self, rows: &[PolicyRow]) -> Result<Value, PolicyError> {
        let mut seen = RequestInputs::default();
        for (key, camera) in self.wiring.cameras() {
            let frames = rows
                .iter()
                .map(|row| self.frames(row, camera))
                .collect::<Result<_, _>>()?;
            seen.video.push((key, frames));
        }
        let deltas = &self.modalities.state.deltas;
        for (key, parts) in self.wiring.states() {
            let steps = |row: &PolicyRow| -> Result<_, _> {
                let steps = row.window.at(deltas).into_iter();
                steps.map(|step| seen::numbers(parts, step)).collect()
            };
            let vectors = rows.iter().map(steps).collect::<Result<_, RowError>>()?;
            seen.state.push((key, vectors));
        }
        let fallback = self.settings.language.as_deref();
        let words = rows.iter().map(|row| seen::words(row.now(), fallback));
        let words: Vec<&str> = words.collect();
        let language = self.modalities.language.keys.iter();
        seen.language = language.map(|key| (key.as_str(), words.clone())).collect();
        Ok(seen.observation().map_err(RowError)?)
    }

    fn frames<'a>(&'a self, row: &'a PolicyRow, camera: &str) -> Result<Vec<&'a Frame>, RowError> {
        let steps = row.window.at(&self.modalities.video.deltas).into_iter();
        steps.map(|step| seen::frame(camera, step)).collect()
    }

    /// Returns where the actions go in the environment's; their widths are those of the first
    /// answer.
    fn places(&mut self, chunk: &[KeyActions]) -> Result<&ActionPlaces, PolicyError> {
        let places = match self.places.take() {
            Some(places) => places,
            None => {
                let widths = chunk.iter().map(|rows| (rows.key.clone(), rows.width));
                let joints = self.settings.joints.as_ref();
                ActionPlaces::new(sides(&self.env), &widths.collect::<Vec<_>>(), joints)?
            }
        };
        Ok(self.places.insert(places))
    }
}

fn sides(env: &EnvSpec) -> Sides<'_> {
    Sides {
        policy: PolicyType::Gr00tRemote.name(),
        face: env,
    }
}

impl PolicySettings for RemoteSettings {
    fn chunk_length(&self) -> Option<usize> {
        self.chunk_length
    }

    fn files(&self) -> Vec<PathBuf> {
        self.files.clone()
    }

    fn make(self: Box<Self>, context: MakeContext<'_>) -> Result<Box<dyn Policy>, PolicyError> {
        Ok(Box::new(Gr00tRemote::new(
            *self,
            context.env,
            context.lifeline,
        )?))
    }
}

impl Policy for Gr00tRemote {
    fn facts(&self) -> PolicyFacts {
        let told = self.settings.seed.map_or(Json::Null, Json::from);
        let deltas = [&self.modalities.video, &self.modalities.state];
        let back = deltas.map(|modality| looks_back(&modality.deltas));
        PolicyFacts {
            horizon: self.horizon,
            needs_video: !self.modalities.video.keys.is_empty(),
            looks_back: back[0].max(back[1]),
            reported: vec![
                ("policy_path", self.settings.server.to_string().into()),
                ("policy_seed", told),
            ],
            notes: self.settings.notes.clone(),
            ..PolicyFacts::default()
        }
    }

    fn act(&mut self, rows: &[PolicyRow]) -> Result<Vec<RowAnswer>, PolicyError> {
        if rows.iter().any(|row| row.inference == 0) {
            self.ask("reset", Value::map([("options", Value::Nil)]))?;
        }
        let chunks = each(rows, |rows| self.infer(rows))?;
        Ok(chunks.into_iter().map(RowAnswer::from).collect())
    }
}

impl Gr00tRemote {
    /// Returns the chunks of rows that one request asks for.
    fn infer(&mut self, rows: &[PolicyRow]) -> Result<Vec<Chunk>, PolicyError> {
        let observation = self.observation(rows)?;
        let data = Value::map([
            ("observation", observation),
            ("options", self.options(rows)),
        ]);
        let answer = self.ask("get_action", data)?;
        let chunks = protocol::actions(
            &answer,
            &self.modalities.action.keys,
            rows.len(),
            self.horizon,
        );
        let chunks = chunks.map_err(|reason| self.refused("get_action", &reason))?;
        let size = [self.horizon, self.env.action.names.len()];
        let places = self.places(chunks.first().map_or(&[], Vec::as_slice))?;
        let placed = chunks
            .iter()
            .map(|chunk| actions::placed(places, chunk, size));
        Ok(placed.collect())
    }
}
