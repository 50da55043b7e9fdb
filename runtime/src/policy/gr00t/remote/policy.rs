//! The client's half of GR00T's protocol: sends observations of many environments in one request
//! and reads the chunks of actions from the answer.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::env::{EnvIndex, EnvSpec, Frame};
use crate::policy::argument;
use crate::policy::config::MakeContext;
use crate::policy::gr00t::actions;
use crate::policy::gr00t::remote::protocol::{self, RequestInputs, ServerModalities};
use crate::policy::gr00t::remote::settings::RemoteSettings;
use crate::policy::remote::{CallError, ClientCodec, Exchange, RemotePolicy, Transport};
use crate::policy::seen;
use crate::policy::{Chunk, Policy, PolicyError, PolicyFacts, PolicyRow, RowError, looks_back};
use jobs::policies::PolicyType;
use jobs::wiring::{ActionPlaces, Sides, Wiring};
use models::gr00t::processor::KeyActions;
use wire::{Dialect, Value};

/// What a client says to a GR00T server.
#[derive(Clone)]
pub(super) struct Gr00tClient {
    settings: Arc<RemoteSettings>,
    env: Arc<EnvSpec>,
    /// What the server's first answer has told.
    met: Option<Arc<MetServer>>,
    /// Where the actions go, once the first chunk has told their widths.
    places: Option<ActionPlaces>,
}

/// What a server has told of its checkpoint, and how that is connected.
struct MetServer {
    modalities: ServerModalities,
    wiring: Wiring,
    horizon: usize,
}

impl Gr00tClient {
    /// Creates a client for an environment.
    pub(super) fn new(settings: RemoteSettings, env: &EnvSpec) -> Self {
        Self {
            settings: Arc::new(settings),
            env: Arc::new(env.clone()),
            met: None,
            places: None,
        }
    }

    fn met(&self) -> Result<Arc<MetServer>, CallError> {
        let unmet = || CallError::Away("it has not told its modalities".to_owned());
        self.met.clone().ok_or_else(unmet)
    }

    fn sides(&self) -> Sides<'_> {
        Sides {
            policy: PolicyType::Gr00tRemote.name(),
            face: &self.env,
        }
    }

    /// Sends a request, and returns the value of its answer.
    async fn ask(
        &self,
        link: &mut impl Exchange,
        (endpoint, data): (&str, Option<Value>),
        dialect: Dialect,
    ) -> Result<Value, CallError> {
        let token = self.settings.server.token.as_ref();
        let request = protocol::request(endpoint, data, token.map(|token| token.0.as_str()));
        let answer = link.ask(wire::write(&request, dialect).into()).await?;
        protocol::answer(&answer).map_err(CallError::Wrong)
    }

    /// Connects a server's checkpoint to the environment.
    fn connect(&self, modalities: ServerModalities) -> Result<MetServer, PolicyError> {
        let settings = &self.settings;
        // Nothing tells the widths of its states.
        let states = modalities.state.keys.iter().map(|key| (key.as_str(), None));
        let given = (settings.cameras.as_deref(), settings.joints.as_ref());
        let wiring = Wiring::checkpoint(self.sides(), &modalities.video.keys, states, given)?;
        let has = modalities.action.deltas.len();
        let horizon = settings.action_horizon.unwrap_or(has);
        if horizon > has {
            let wanted = format!("expected at most the {has} steps of {}", settings.server);
            return Err(argument("action_horizon", &horizon.to_string(), &wanted));
        }
        Ok(MetServer {
            modalities,
            wiring,
            horizon,
        })
    }

    /// Returns the noise seeds, one per row: the same as for a policy in this process.
    fn options(&self, rows: &[&PolicyRow]) -> Value {
        let Some(own) = self.settings.seed else {
            return Value::Nil;
        };
        let seeds = rows.iter().map(|row| Value::from(row.noise_seed(own)));
        Value::map([("noise_seeds", seeds.collect::<Vec<_>>().into())])
    }

    fn observation(&self, met: &MetServer, rows: &[&PolicyRow]) -> Result<Value, CallError> {
        let mut seen = RequestInputs::default();
        for (key, camera) in met.wiring.cameras() {
            let deltas = &met.modalities.video.deltas;
            let frames = rows.iter().map(|row| frames(row, deltas, camera));
            let frames = frames.collect::<Result<_, _>>()?;
            seen.video.push((key, frames));
        }
        for (key, parts) in met.wiring.states() {
            let steps = |row: &&PolicyRow| -> Result<_, RowError> {
                let steps = row.window.at(&met.modalities.state.deltas).into_iter();
                steps.map(|step| seen::numbers(parts, step)).collect()
            };
            let vectors = rows.iter().map(steps).collect::<Result<_, _>>()?;
            seen.state.push((key, vectors));
        }
        let fallback = self.settings.language.as_deref();
        let words = rows.iter().map(|row| seen::words(row.now(), fallback));
        let words: Vec<&str> = words.collect();
        let language = met.modalities.language.keys.iter();
        seen.language = language.map(|key| (key.as_str(), words.clone())).collect();
        seen.observation()
            .map_err(|reason| CallError::Row(RowError(reason)))
    }

    /// Returns where the actions go in the environment's; their widths are those of the first
    /// answer.
    fn places(&mut self, chunk: &[KeyActions]) -> Result<&ActionPlaces, PolicyError> {
        let places = match self.places.take() {
            Some(places) => places,
            None => {
                let widths = chunk.iter().map(|rows| (rows.key.clone(), rows.width));
                let joints = self.settings.joints.as_ref();
                ActionPlaces::new(self.sides(), &widths.collect::<Vec<_>>(), joints)?
            }
        };
        Ok(self.places.insert(places))
    }
}

fn frames<'a>(
    row: &'a PolicyRow,
    deltas: &[i64],
    camera: &str,
) -> Result<Vec<&'a Frame>, RowError> {
    let steps = row.window.at(deltas).into_iter();
    steps.map(|step| seen::frame(camera, step)).collect()
}

impl ClientCodec for Gr00tClient {
    const TRANSPORT: Transport = Transport::Zmtp;
    const STEPS: [&'static str; 3] = ["get_modality_config", "reset", "get_action"];
    const TOGETHER: bool = true;

    fn lane(&self, _: EnvIndex) -> usize {
        0
    }

    fn another(&self) -> Self {
        self.clone()
    }

    async fn greet(&mut self, link: &mut impl Exchange) -> Result<(), CallError> {
        if self.met.is_none() {
            let config = ("get_modality_config", None);
            let answer = self.ask(link, config, Dialect::Kind).await?;
            let modalities = ServerModalities::read(&answer).map_err(CallError::Wrong)?;
            let met = self.connect(modalities).map_err(CallError::Policy)?;
            self.met = Some(Arc::new(met));
        }
        Ok(())
    }

    async fn begin(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<(), CallError> {
        if rows.iter().any(|row| row.inference == 0) {
            let options = Value::map([("options", Value::Nil)]);
            let dialect = self.met()?.modalities.dialect;
            self.ask(link, ("reset", Some(options)), dialect).await?;
        }
        Ok(())
    }

    async fn infer(
        &mut self,
        link: &mut impl Exchange,
        rows: &[&PolicyRow],
    ) -> Result<Vec<Chunk>, CallError> {
        let met = self.met()?;
        let observation = self.observation(&met, rows)?;
        let data = Value::map([
            ("observation", observation),
            ("options", self.options(rows)),
        ]);
        let request = ("get_action", Some(data));
        let answer = self.ask(link, request, met.modalities.dialect).await?;
        let keys = &met.modalities.action.keys;
        let chunks = protocol::actions(&answer, keys, rows.len(), met.horizon);
        let chunks = chunks.map_err(CallError::Wrong)?;
        let size = [met.horizon, self.env.action.names.len()];
        let first = chunks.first().map_or(&[][..], Vec::as_slice);
        let places = self.places(first).map_err(CallError::Policy)?;
        let placed = chunks
            .iter()
            .map(|chunk| actions::placed(places, chunk, size));
        Ok(placed.collect())
    }

    fn facts(&self) -> PolicyFacts {
        let told = self.settings.seed.map_or(Json::Null, Json::from);
        let mut facts = PolicyFacts {
            reported: vec![
                ("policy_path", self.settings.server.to_string().into()),
                ("policy_seed", told),
            ],
            notes: self.settings.notes.clone(),
            ..PolicyFacts::default()
        };
        if let Some(MetServer {
            modalities,
            horizon,
            ..
        }) = self.met.as_deref()
        {
            facts.horizon = *horizon;
            facts.needs_video = !modalities.video.keys.is_empty();
            facts.looks_back =
                looks_back(&modalities.video.deltas).max(looks_back(&modalities.state.deltas));
        }
        facts
    }
}

impl RemoteSettings {
    /// Connects to the server.
    pub(in crate::policy) fn make(
        self,
        context: MakeContext<'_>,
    ) -> Result<Box<dyn Policy>, PolicyError> {
        let server = self.server.clone();
        let client = Gr00tClient::new(self, context.env()?);
        RemotePolicy::open(client, &server, context.lifeline)
    }
}
