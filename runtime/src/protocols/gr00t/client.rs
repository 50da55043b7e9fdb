//! The client's half: sends observations of many environments in one request, and reads the chunks
//! of actions from the answer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use jobs::policies::{Gr00tRemote, PolicyType, Scheduler, Server};
use jobs::wiring::{ActionPlaces, Joints, Sides, Wiring};
use models::gr00t::processor::KeyActions;
use serde_json::Value as Json;
use wire::{Array, Dialect, Key, Value};

use crate::env::{EnvSpec, Frame, Observation};
use crate::policy::gr00t::{lengths, placed};
use crate::policy::remote::PolicyServer;
use crate::policy::{
    Chunk, PolicyError, PolicyFacts, PolicyRow, RowError, argument, looks_back, seen,
};
use crate::protocols::{CallError, ClientCodec, Exchange, OnServer, Transport, read};

/// Maximum number of steps that a checkpoint may look back, and of steps at which it may use
/// pictures and states. GR00T N1.7 uses two, fifteen steps apart. This many observations of each
/// environment are kept, and sent with each request.
const LONGEST_LOOK: i64 = 128;

/// Prefix of a raw answer that is sent if not even an error could be packed.
const RAW_ERROR: &[u8] = b"ERROR";

impl OnServer for Gr00tRemote {
    type Codec = Gr00tClient;
    const PORT: u16 = 5555;
    /// That of GR00T's client.
    const TIMEOUT: Duration = Duration::from_secs(15);
    const OF_THE_SERVER: &[&str] = &[
        "model_path",
        "vlm_path",
        "embodiment_tag",
        "denoising_steps",
        "dtype",
        "batching",
    ];

    fn server(&self) -> (&Server, Option<&PathBuf>) {
        (&self.server, None)
    }

    fn check(&self) -> Result<Option<usize>, PolicyError> {
        Joints::read(&self.wiring)?;
        Ok(lengths(&self.wiring)?.1)
    }

    fn files(&self) -> Vec<PathBuf> {
        self.wiring.files().cloned().collect()
    }

    fn client(self, server: &PolicyServer, env: &EnvSpec) -> Result<Gr00tClient, PolicyError> {
        Ok(Gr00tClient {
            joints: Joints::read(&self.wiring)?,
            given: Arc::new(self),
            server: server.clone(),
            env: Arc::new(env.clone()),
            met: None,
            places: None,
        })
    }
}

/// What a client says to a GR00T server.
#[derive(Clone)]
pub(crate) struct Gr00tClient {
    given: Arc<Gr00tRemote>,
    server: PolicyServer,
    /// Joints of the simulator by name, for robots whose state is one vector.
    joints: Option<Joints>,
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
    fn met(&self) -> Result<Arc<MetServer>, CallError> {
        let unmet = || CallError::Away("it has not told its modalities".to_owned());
        self.met.clone().ok_or_else(unmet)
    }

    fn sides(&self) -> Sides<'_> {
        Sides::new(PolicyType::Gr00tRemote, &self.env)
    }

    /// Sends a request, and returns the value of its answer.
    async fn ask(
        &self,
        link: &mut impl Exchange,
        (endpoint, data): (&str, Option<Value>),
        dialect: Dialect,
    ) -> Result<Value, CallError> {
        let token = self.server.token.as_ref();
        let request = request(endpoint, data, token.map(|token| token.0.as_str()));
        let sent = link.ask(wire::write(&request, dialect).into()).await?;
        answer(&sent).map_err(CallError::Wrong)
    }

    /// Connects a server's checkpoint to the environment.
    fn connect(&self, modalities: ServerModalities) -> Result<MetServer, PolicyError> {
        // Nothing tells the widths of its states.
        let states = modalities.state.keys.iter().map(|key| (key.as_str(), None));
        let cameras = self.given.wiring.pov_cam_name_sim.as_ref();
        let given = (cameras.map(|names| &names.0[..]), self.joints.as_ref());
        let wiring = Wiring::checkpoint(self.sides(), &modalities.video.keys, states, given)?;
        let has = modalities.action.deltas.len();
        let horizon = self.given.wiring.action_horizon.map_or(has, usize::from);
        if horizon > has {
            let wanted = format!("expected at most the {has} steps of {}", self.server);
            return Err(argument("action_horizon", &horizon.to_string(), &wanted));
        }
        Ok(MetServer {
            modalities,
            wiring,
            horizon,
        })
    }

    /// Returns the seed of the noise, which is sent to servers of this project as
    /// `options.noise_seeds`.
    fn seed(&self) -> Option<u64> {
        let given = &self.given;
        given.remote_noise_seeds.then_some(given.wiring.seed)
    }

    fn observation(&self, met: &MetServer, rows: &[&PolicyRow]) -> Result<Value, RowError> {
        let (mut video, mut state) = (Vec::new(), Vec::new());
        let ServerModalities {
            video: pictures_of,
            state: states_of,
            language,
            ..
        } = &met.modalities;
        for (key, camera) in met.wiring.cameras() {
            let frames = steps(rows, &pictures_of.deltas, |step| seen::frame(camera, step))?;
            let pictures = pictures(key, &frames, [rows.len(), pictures_of.deltas.len()])?;
            video.push((Key::from(key), pictures));
        }
        for (key, parts) in met.wiring.states() {
            let numbers = steps(rows, &states_of.deltas, |step| seen::numbers(parts, step))?;
            let vectors = vectors(key, &numbers, [rows.len(), states_of.deltas.len()])?;
            state.push((Key::from(key), vectors));
        }
        let fallback = self.given.wiring.language_instruction.as_deref();
        let words = rows.iter().map(|row| seen::words(row.now(), fallback));
        let words: Vec<Value> = words.map(|words| vec![words.into()].into()).collect();
        let language = language.keys.iter();
        let language = language.map(|key| (Key::from(key.as_str()), words.clone().into()));
        Ok(Value::map([
            ("video", Value::Map(video)),
            ("state", Value::Map(state)),
            ("language", Value::Map(language.collect())),
        ]))
    }

    /// Returns where the actions go in the environment's; their widths are those of the first
    /// answer.
    fn places(&mut self, chunk: &[KeyActions]) -> Result<&ActionPlaces, PolicyError> {
        let places = match self.places.take() {
            Some(places) => places,
            None => {
                let widths = chunk.iter().map(|rows| (rows.key.clone(), rows.width));
                let joints = self.joints.as_ref();
                ActionPlaces::new(self.sides(), &widths.collect::<Vec<_>>(), joints)?
            }
        };
        Ok(self.places.insert(places))
    }
}

impl ClientCodec for Gr00tClient {
    const TRANSPORT: Transport = Transport::Zmtp;
    const STEPS: [&'static str; 3] = ["get_modality_config", "reset", "get_action"];
    const TOGETHER: bool = true;

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
        let options = self.seed().map(|own| {
            // The same as for a policy in this process.
            let seeds = rows.iter().map(|row| row.noise_seed(own).into());
            Value::map([("noise_seeds", Value::List(seeds.collect()))])
        });
        let data = Value::map([
            ("observation", observation),
            ("options", options.unwrap_or(Value::Nil)),
        ]);
        let request = ("get_action", Some(data));
        let answer = self.ask(link, request, met.modalities.dialect).await?;
        let keys = &met.modalities.action.keys;
        let chunks = actions(&answer, keys, rows.len(), met.horizon).map_err(CallError::Wrong)?;
        let size = [met.horizon, self.env.action.names.len()];
        let first = chunks.first().map_or(&[][..], Vec::as_slice);
        let places = self.places(first).map_err(CallError::Policy)?;
        Ok(chunks
            .iter()
            .map(|chunk| placed(places, chunk, size))
            .collect())
    }

    fn facts(&self) -> PolicyFacts {
        let mut facts = PolicyFacts {
            reported: vec![("policy_seed", self.seed().map_or(Json::Null, Json::from))],
            ..PolicyFacts::default()
        };
        if self.given.scheduler == Scheduler::SyncedBatch {
            facts.notes.push(
                "scheduler synced_batch is treated as chunk: environments that need a chunk at the \
                 same time share a request, and none waits for others"
                    .to_owned(),
            );
        }
        if let Some(met) = &self.met {
            let (video, state) = (&met.modalities.video, &met.modalities.state);
            facts.horizon = met.horizon;
            facts.needs_video = !video.keys.is_empty();
            facts.looks_back = looks_back(&video.deltas).max(looks_back(&state.deltas));
        }
        facts
    }
}

/// Builds a request from its endpoint, its arguments, and the token if there is one.
pub(super) fn request(endpoint: &str, data: Option<Value>, token: Option<&str>) -> Value {
    let mut members = vec![(Key::from("endpoint"), Value::from(endpoint))];
    members.extend(data.map(|data| (Key::from("data"), data)));
    members.extend(token.map(|token| (Key::from("api_token"), Value::from(token))));
    Value::Map(members)
}

/// Returns the value of an answer, or the error that the server reports.
pub(super) fn answer(bytes: &Bytes) -> Result<Value, String> {
    if bytes.starts_with(RAW_ERROR) {
        return Err("it answers ERROR".to_owned());
    }
    let value = read(bytes)?;
    match value.get("error") {
        None => Ok(value),
        Some(Value::Text(text)) if !text.is_empty() => {
            Err(format!("it answers with the error `{text}`"))
        }
        Some(_) => Err("it answers with an error without a message".to_owned()),
    }
}

/// One modality: the keys and time steps of a kind of input or output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ServerModality {
    /// Key names, in order.
    pub keys: Vec<String>,
    /// Time steps relative to now, with 0 for now.
    pub deltas: Vec<i64>,
}

/// The modalities of a server's checkpoint, and the dialect in which it writes arrays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerModalities {
    pub video: ServerModality,
    pub state: ServerModality,
    pub action: ServerModality,
    pub language: ServerModality,
    pub dialect: Dialect,
}

impl ServerModalities {
    /// Reads the answer to `get_modality_config`.
    ///
    /// # Errors
    /// Returns the name of what is missing.
    pub(super) fn read(answer: &Value) -> Result<Self, String> {
        let action = modality(answer, "action")?;
        if action.keys.is_empty() || action.deltas.is_empty() {
            return Err("its modality configuration has no actions".to_owned());
        }
        let marker = Dialect::Npy.modality_marker();
        let config = answer.get("action");
        let is_legacy = config.is_some_and(|config| config.get(marker).is_some());
        Ok(Self {
            video: input(answer, "video")?,
            state: input(answer, "state")?,
            action,
            language: input(answer, "language")?,
            dialect: if is_legacy {
                Dialect::Npy
            } else {
                Dialect::Kind
            },
        })
    }
}

/// Reads an input modality, if there is one, whose number of steps is within the limit.
fn input(answer: &Value, name: &str) -> Result<ServerModality, String> {
    if answer.get(name).is_none() {
        return Ok(ServerModality::default());
    }
    let input = modality(answer, name)?;
    let deltas = &input.deltas;
    if deltas.len() as i64 > LONGEST_LOOK || deltas.iter().any(|delta| *delta < -LONGEST_LOOK) {
        return Err(format!(
            "its modality configuration looks back more than {LONGEST_LOOK} steps in `{name}`"
        ));
    }
    Ok(input)
}

fn modality(answer: &Value, name: &str) -> Result<ServerModality, String> {
    let wrong = |field: &str| format!("its modality configuration has no `{name}.{field}`");
    let config = answer.get(name).and_then(|config| config.get("as_json"));
    let config = config.ok_or_else(|| wrong("as_json"))?;
    let list = |field: &str| {
        let list = config.get(field).and_then(Value::as_list);
        list.ok_or_else(|| wrong(field))
    };
    let keys = list("modality_keys")?.iter();
    let keys = keys.map(|key| key.as_text().map(str::to_owned));
    let deltas = list("delta_indices")?.iter().map(|delta| match delta {
        Value::Int(delta) if (-4096..=4096).contains(delta) => Some(*delta),
        _ => None,
    });
    let keys: Option<_> = keys.collect();
    let deltas: Option<_> = deltas.collect();
    Ok(ServerModality {
        keys: keys.ok_or_else(|| wrong("modality_keys"))?,
        deltas: deltas.ok_or_else(|| wrong("delta_indices"))?,
    })
}

/// Returns what each row shows at some steps, oldest first, one row after the other.
fn steps<'a, T>(
    rows: &[&'a PolicyRow],
    deltas: &[i64],
    read: impl Fn(&'a Observation) -> Result<T, RowError>,
) -> Result<Vec<T>, RowError> {
    let steps = rows.iter().flat_map(|row| row.window.at(deltas));
    steps.map(read).collect()
}

/// Returns `uint8 [rows, steps, height, width, 3]`.
pub(super) fn pictures(
    key: &str,
    frames: &[&Frame],
    [rows, steps]: [usize; 2],
) -> Result<Value, RowError> {
    let size = |frame: &Frame| [frame.height as usize, frame.width as usize];
    let first = frames.first().map_or([0, 0], |frame| size(frame));
    if frames.iter().any(|frame| size(frame) != first) {
        return Err(RowError(format!(
            "pictures of {key} have different sizes, one request takes pictures of one size"
        )));
    }
    let [height, width] = first;
    let mut bytes = Vec::with_capacity(frames.len() * height * width * 3);
    frames
        .iter()
        .for_each(|frame| bytes.extend_from_slice(&frame.rgb));
    Ok(Array::of_u8(&[rows, steps, height, width, 3], bytes.into()).into())
}

/// Returns `float32 [rows, steps, width]`.
pub(super) fn vectors(
    key: &str,
    vectors: &[Vec<f32>],
    [rows, steps]: [usize; 2],
) -> Result<Value, RowError> {
    let width = vectors.first().map_or(0, Vec::len);
    if vectors.iter().any(|vector| vector.len() != width) {
        return Err(RowError(format!("state {key} has different lengths")));
    }
    Ok(Array::of_f32(&[rows, steps, width], &vectors.concat()).into())
}

/// Returns the actions of each row from the answer to `get_action`: `[{key: float32 [rows, horizon
/// or more, width]}, info]`.
///
/// # Errors
/// Returns what is missing or has another shape.
pub(super) fn actions(
    answer: &Value,
    keys: &[String],
    rows: usize,
    horizon: usize,
) -> Result<Vec<Vec<KeyActions>>, String> {
    let map = answer.as_list().and_then(<[Value]>::first);
    let map = map.ok_or("its answer is not a list of actions and info")?;
    let mut chunks = vec![Vec::with_capacity(keys.len()); rows];
    for key in keys {
        let array = map.get(key).and_then(Value::as_array);
        let array = array.ok_or_else(|| format!("its answer has no actions {key}"))?;
        let (steps, width) = match *array.shape() {
            [found, steps, width] if found == rows && steps >= horizon && width > 0 => {
                (steps, width)
            }
            ref found => {
                return Err(format!(
                    "actions {key} are {found:?}, expected [{rows}, {horizon} or more, 1 or more]"
                ));
            }
        };
        let numbers = array.to_f32();
        for (chunk, values) in chunks.iter_mut().zip(numbers.chunks_exact(steps * width)) {
            chunk.push(KeyActions {
                key: key.clone(),
                width,
                values: values[..horizon * width].to_vec(),
            });
        }
    }
    Ok(chunks)
}
