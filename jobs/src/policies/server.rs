//! The settings of the policies behind a server.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::policies::rank::Gr00tWiring;
use crate::settings::kinds::{Count, Edges, Ignored, OneOrMany, Port, Seconds, number, yes};

/// Where a server is, and how long it is waited for.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Server {
    /// name or address of the server
    #[serde(default = "localhost")]
    #[schemars(extend("place" = true))]
    pub remote_host: String,
    /// port of the server [default: by protocol]
    #[schemars(extend("place" = true))]
    pub remote_port: Option<Port>,
    /// the token, which plans and journals would show [default: none]
    #[schemars(extend("place" = true))]
    pub remote_api_token: Option<String>,
    /// the environment variable that holds the token [default: none]
    #[schemars(extend("place" = true))]
    pub remote_api_token_env: Option<String>,
    /// time limit for each of connecting, sending a request, and receiving the answer
    /// [default: by protocol]
    #[schemars(extend("place" = true))]
    pub remote_timeout_s: Option<Seconds>,
    /// how long the server may be unavailable
    // Large models take minutes to load.
    #[serde(default = "number::<300, Seconds>")]
    #[schemars(extend("place" = true))]
    pub remote_retry_s: Seconds,
}

/// What servers with websockets have beside [`Server`].
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Websocket {
    /// The server.
    #[serde(flatten)]
    pub server: Server,
    /// PEM file with the certificate authority of a server with `wss://`
    /// [default: the certificate authorities that browsers trust]
    #[schemars(extend("path" = "file", "place" = true))]
    pub remote_ca_file: Option<PathBuf>,
}

impl Websocket {
    /// Returns where the server is, and the file with the authorities that are trusted.
    pub fn place(&self) -> (&Server, Option<&PathBuf>) {
        (&self.server, self.remote_ca_file.as_ref())
    }
}

/// Of a GR00T server.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Gr00tRemote {
    /// The server.
    #[serde(flatten)]
    pub server: Server,
    /// `synced_batch` is treated as `chunk`
    #[serde(default)]
    pub scheduler: Scheduler,
    /// whether the seeds of the noise are sent
    #[serde(default = "yes")]
    pub remote_noise_seeds: bool,
    /// What concerns the environment.
    #[serde(flatten)]
    pub wiring: Gr00tWiring,
    /// the checkpoint is on the server
    pub model_path: Option<Ignored>,
    /// the checkpoint is on the server
    pub vlm_path: Option<Ignored>,
    /// the checkpoint is on the server
    pub embodiment_tag: Option<Ignored>,
    /// the checkpoint is on the server
    pub denoising_steps: Option<Ignored>,
    /// the checkpoint is on the server
    pub dtype: Option<Ignored>,
    /// the checkpoint is on the server
    pub batching: Option<Ignored>,
}

/// When Arena's client asks for chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are Arena's")]
pub enum Scheduler {
    #[default]
    Chunk,
    SyncedBatch,
}

/// Of an openpi server.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Pi0 {
    /// The server.
    #[serde(flatten)]
    pub websocket: Websocket,
    /// the server's names of cameras and states
    #[serde(default)]
    pub openpi_embodiment_adapter: Pi0Adapter,
    /// maps each key of the server to a camera, a state, or a list of states [default: by adapter]
    pub observation_mapping: Option<Map<String, Value>>,
    /// the environment's cameras in the order of the adapter's [default: cameras by name]
    pub pov_cam_name_sim: Option<OneOrMany>,
    /// the server's checkpoint, which sets the number of actions to execute with `droid`
    #[serde(default = "pi05")]
    pub policy_variant: String,
    /// number of actions to execute [default: by adapter and variant]
    pub action_chunk_length: Option<Count>,
    /// height and width of the images that are sent [default: 224 × 224]
    pub target_image_size: Option<Edges>,
    /// used if neither job nor environment has an instruction [default: none]
    pub language_instruction: Option<String>,
    /// maximum number of connections
    #[serde(default = "number::<16, Count>")]
    #[schemars(extend("place" = true))]
    pub remote_connections: Count,
    // A pong is sent whenever the connection is read, and the timeout detects what a ping would
    // detect.
    /// the timeout detects what a ping would
    #[schemars(extend("place" = true))]
    pub ping_interval: Option<Ignored>,
    /// the timeout detects what a ping would
    #[schemars(extend("place" = true))]
    pub ping_timeout: Option<Ignored>,
}

/// Whose names of cameras and states an openpi server has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names are openpi's")]
pub enum Pi0Adapter {
    #[default]
    Droid,
    Libero,
    Custom,
}

/// Of a policy server of XPolicyLab.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Xpolicylab {
    /// The server.
    #[serde(flatten)]
    pub websocket: Websocket,
    /// maps each key of an observation (`vision/cam_head`, `state/arm_joint_state`) to a camera, a
    /// state, or a list of states [default: by name]
    pub observation_mapping: Option<Map<String, Value>>,
    /// the server's actions, in the order of the environment's
    /// [default: `arm_joint_state`, `ee_joint_state`]
    pub action_keys: Option<OneOrMany>,
    /// number of actions to execute [default: as many as the server returns]
    pub action_chunk_length: Option<Count>,
    /// used if neither job nor environment has an instruction [default: none]
    pub language_instruction: Option<String>,
}

/// Of a model server of vla-eval.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct VlaEval {
    /// The server.
    #[serde(flatten)]
    pub websocket: Websocket,
    /// maps each key of an observation to a camera, a state, or a list of states
    /// [default: all cameras and states]
    pub observation_mapping: Option<Map<String, Value>>,
    /// height and width of the images that are sent [default: as rendered]
    pub target_image_size: Option<Edges>,
    /// number of actions of an answer to execute [default: 1]
    pub action_chunk_length: Option<Count>,
    /// what else the server is told of the task when an episode begins [default: none]
    pub task: Option<Map<String, Value>>,
    /// used if neither job nor environment has an instruction [default: none]
    pub language_instruction: Option<String>,
}

/// Most of what an agent counts.
const MOST: u64 = 1_000_000;

/// Of a vision-language model behind a chat server. Its limits are those of EmbodiedBench.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Agent {
    /// `http://host:port/v1` or `https://…`
    #[schemars(extend("wanted" = "the address of a server, for example http://localhost:8000/v1"))]
    pub model_url: String,
    /// the name that the server knows
    #[schemars(length(min = 1), extend("wanted" = "a name"))]
    pub model: String,
    /// name of the variable that contains the key [default: none]
    pub api_key_env: Option<String>,
    /// PEM file with the certificate authority of the server
    /// [default: the certificate authorities that browsers trust]
    #[schemars(extend("path" = "file"))]
    pub ca_file: Option<PathBuf>,
    /// sampling temperature
    #[serde(default)]
    #[schemars(range(min = 0.0, max = 2.0))]
    pub temperature: f64,
    /// additional fields of each request
    #[serde(default)]
    pub extra_body: Map<String, Value>,
    /// cameras whose images are sent [default: all]
    pub cameras: Option<OneOrMany>,
    /// send no images
    #[serde(default)]
    pub language_only: bool,
    /// names of discrete actions [default: from the environment]
    pub actions: Option<OneOrMany>,
    /// include earlier requests and answers of the episode
    #[serde(default)]
    pub chat_history: bool,
    /// text before the list of actions [default: built-in prompt]
    #[schemars(extend("path" = "file"))]
    pub system_prompt_file: Option<PathBuf>,
    /// maximum length of an answer [default: 2048]
    #[schemars(range(min = 0, max = MOST))]
    pub max_tokens: Option<usize>,
    /// the same, for newer models of OpenAI [default: 2048]
    #[schemars(range(min = 0, max = MOST))]
    pub max_completion_tokens: Option<usize>,
    /// failed actions or invalid answers after which an episode ends
    // `_max_invalid_actions` of EmbodiedBench's ALFRED and Habitat environments.
    #[serde(default = "number::<10, u64>")]
    #[schemars(range(min = 1, max = MOST))]
    pub max_invalid_actions: u64,
    /// requests of a rank at the same time
    // A server with one GPU batches as many well.
    #[serde(default = "number::<16, usize>")]
    #[schemars(range(min = 1, max = MOST))]
    pub max_concurrent_requests: usize,
    /// for one request, from connecting to the last byte
    // Enough for a large model with a long answer on a busy server.
    #[serde(default = "number::<120, f64>")]
    #[schemars(range(min = 0.1, max = 3600.0))]
    pub request_timeout_s: f64,
    /// requests after the first that fails
    // With waits of 1, 2, 4, 8 and 16 s a server may be unreachable for half a minute.
    #[serde(default = "number::<5, u32>")]
    #[schemars(range(min = 0, max = MOST))]
    pub max_retries: u32,
    /// wait before the first retry, doubled each time
    #[serde(default = "number::<1, f64>")]
    #[schemars(range(min = 0.0, max = 60.0))]
    pub retry_wait_s: f64,
}

fn localhost() -> String {
    "localhost".to_owned()
}

fn pi05() -> String {
    "pi05".to_owned()
}
