//! The remote GR00T policy: sends observations of many environments in one request and reads the
//! chunks of actions from the answer.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use serde_json::Value as Json;

use crate::env::{EnvSpec, Frame};
use crate::policy::answers::each;
use crate::policy::argument;
use crate::policy::gr00t::remote::protocol::{self, RequestInputs, ServerModalities};
use crate::policy::gr00t::remote::settings::RemoteSettings;
use crate::policy::gr00t::wiring::{CheckpointKeys, Wiring};
use crate::policy::remote::{Caller, Lifeline, Req};
use crate::policy::settings::{MakeContext, PolicySettings};
use crate::policy::{
    Chunk, InferenceError, Policy, PolicyError, PolicyFacts, PolicyRow, RowAnswer, looks_back,
};
use gr00t::processor::KeyActions;
use wire::Value;

/// A server's policy that acts in one environment.
#[derive(Debug)]
pub struct Gr00tRemote {
    settings: RemoteSettings,
    caller: Caller<Req>,
    modalities: ServerModalities,
    env: EnvSpec,
    wiring: Wiring,
    /// Whether the widths of the actions are known, which is the case after the first answer.
    knows_widths: bool,
    horizon: usize,
}

impl Gr00tRemote {
    /// Asks the server for its modalities and connects them to the environment.
    ///
    /// # Errors
    /// Returns [`PolicyError::Remote`] if the server is unreachable or refuses, and
    /// [`PolicyError::Mismatch`] if it and the environment do not fit together.
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
        let wiring = Wiring::seeing(
            &keys(&modalities, Vec::new()),
            env,
            settings.cameras.as_deref(),
            settings.joints.as_ref(),
        )?;
        let has = modalities.action.deltas.len();
        let horizon = settings.action_horizon.unwrap_or(has);
        if horizon > has {
            let wanted = format!("expected at most the {has} steps of {}", settings.server);
            return Err(argument("action_horizon", &horizon.to_string(), &wanted));
        }
        Ok(Self {
            env: env.clone(),
            knows_widths: false,
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
        // The vectors come ordered by row, step and key; the request needs them by key, row and
        // step.
        let mut state: BTreeMap<&str, Vec<Vec<Vec<f32>>>> = BTreeMap::new();
        for (index, row) in rows.iter().enumerate() {
            let deltas = &self.modalities.state.deltas;
            for step in row.window.at(deltas) {
                for (key, values) in self.wiring.states(step)? {
                    let of_key = state.entry(key).or_default();
                    of_key.resize_with(index + 1, Vec::new);
                    of_key[index].push(values);
                }
            }
        }
        let keys = self.modalities.state.keys.iter();
        seen.state = keys
            .filter_map(|key| Some((key.as_str(), state.remove(key.as_str())?)))
            .collect();
        let fallback = self.settings.language.as_deref().unwrap_or_default();
        let words: Vec<&str> = rows
            .iter()
            .map(|row| match &*row.now().language {
                "" => fallback,
                own => own,
            })
            .collect();
        let language = self.modalities.language.keys.iter();
        seen.language = language.map(|key| (key.as_str(), words.clone())).collect();
        let reason = |reason| InferenceError::Row { reason };
        Ok(seen.observation().map_err(reason)?)
    }

    fn frames<'a>(
        &'a self,
        row: &'a PolicyRow,
        camera: &str,
    ) -> Result<Vec<&'a Frame>, InferenceError> {
        let gone = || InferenceError::no_picture(camera);
        row.window
            .at(&self.modalities.video.deltas)
            .into_iter()
            .map(|seen| seen.video.get(camera).ok_or_else(gone))
            .collect()
    }

    /// Connects the server's actions to the environment's, once their widths are known.
    fn learn_widths(&mut self, chunk: &[KeyActions]) -> Result<(), PolicyError> {
        if !std::mem::replace(&mut self.knows_widths, true) {
            let widths = chunk
                .iter()
                .map(|rows| (rows.key.clone(), rows.width))
                .collect();
            self.wiring.act(
                &keys(&self.modalities, widths),
                &self.env,
                self.settings.joints.as_ref(),
            )?;
        }
        Ok(())
    }
}

/// Returns the server's keys. Only its answers tell the widths of its actions, and nothing tells
/// the widths of its states.
fn keys(modalities: &ServerModalities, action: Vec<(String, usize)>) -> CheckpointKeys {
    let state = modalities
        .state
        .keys
        .iter()
        .map(|key| (key.clone(), None))
        .collect();
    CheckpointKeys {
        video: modalities.video.keys.clone(),
        state,
        action,
    }
}

impl PolicySettings for RemoteSettings {
    fn chunk_length(&self) -> Option<usize> {
        self.chunk_length
    }

    fn files(&self) -> Vec<PathBuf> {
        self.file.iter().cloned().collect()
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
        if let Some(first) = chunks.first() {
            self.learn_widths(first)?;
        }
        let dim = self.env.action.names.len();
        Ok(chunks
            .iter()
            .map(|chunk| Chunk::new(dim, self.wiring.actions(chunk, self.horizon)))
            .collect())
    }
}
