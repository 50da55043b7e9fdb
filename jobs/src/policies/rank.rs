//! The settings of the policies that run in the rank, or in a Python process of its own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::settings::kinds::{Count, Ignored, OneOrMany, PyName, Seconds, number, yes};

/// Of a policy whose chunks have one action.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct OneAction {
    /// number of actions to execute; a chunk has one
    #[serde(default = "number::<1, usize>")]
    #[schemars(extend("minimum" = 1, "maximum" = 1, "wanted" = "1, because a chunk has one action"))]
    pub action_chunk_length: usize,
}

/// Of a replay.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Replay {
    /// the dataset, in robomimic layout
    // An earlier job of the same run may record it.
    #[schemars(extend("path" = "anything"))]
    pub replay_file_path: PathBuf,
    /// the demonstration to replay, for example `demo_3` [default: all]
    pub episode_name: Option<String>,
    /// the device is that of the rank
    #[schemars(extend("place" = true))]
    pub device: Option<Ignored>,
}

/// Of the expert for the built-in tasks.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Scripted {
    /// number of steps that it plans ahead
    #[serde(default = "number::<8, Count>")]
    pub action_horizon: Count,
    /// number of actions to execute [default: 4]
    pub action_chunk_length: Option<Count>,
}

/// Of a GR00T checkpoint in the rank.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Gr00t {
    /// folder of the checkpoint, or the name of a downloaded model; here or in
    /// policy_config_yaml_path
    #[schemars(extend("path" = "checkpoint"))]
    pub model_path: PathBuf,
    /// folder of the backbone's tokenizer and configuration [default: `vlm/` in the checkpoint]
    #[schemars(extend("path" = "anything"))]
    pub vlm_path: Option<PathBuf>,
    /// tag or enum name, case-insensitive [default: the checkpoint's only one]
    pub embodiment_tag: Option<String>,
    /// Euler steps [default: from the checkpoint]
    pub denoising_steps: Option<Count>,
    /// element type of the computation [default: `bfloat16` on a GPU, `float32` on a CPU]
    pub dtype: Option<Dtype>,
    /// whether prompts of different lengths share a batch
    #[serde(default)]
    pub batching: Batching,
    /// continue the previous chunk, see latency.md: rate at which its actions become free
    /// [default: none]
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub rtc_ramp_rate: Option<f64>,
    /// whether a GPU replays captured passes
    #[serde(default = "yes")]
    pub cuda_graphs: bool,
    /// What concerns the environment.
    #[serde(flatten)]
    pub wiring: Gr00tWiring,
}

/// The settings of a GR00T policy that concern the environment more than the checkpoint, here and
/// on a server.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Gr00tWiring {
    /// Arena's YAML file with the same settings; the job takes precedence [default: none]
    #[schemars(extend("path" = "file"))]
    pub policy_config_yaml_path: Option<PathBuf>,
    /// number of usable actions in a chunk [default: all steps of the embodiment]
    pub action_horizon: Option<Count>,
    /// number of actions to execute [default: action_horizon]
    pub action_chunk_length: Option<Count>,
    /// used if neither job nor environment has an instruction [default: none]
    pub language_instruction: Option<String>,
    /// the environment's cameras in the order of the checkpoint's views [default: cameras by name]
    pub pov_cam_name_sim: Option<OneOrMany>,
    /// joints of each group [default: none]
    #[schemars(extend("path" = "file"))]
    pub policy_joints_config_path: Option<PathBuf>,
    /// index of each joint in the state [default: none]
    #[schemars(extend("path" = "file"))]
    pub state_joints_config_path: Option<PathBuf>,
    /// index of each joint in the action [default: none]
    #[schemars(extend("path" = "file"))]
    pub action_joints_config_path: Option<PathBuf>,
    /// part of the seed of the initial noise
    // Arena's default.
    #[serde(default = "number::<10, u64>")]
    pub seed: u64,
    /// the checkpoint has its own modalities
    pub modality_config_path: Option<Ignored>,
    /// sizes are taken from the images
    pub original_image_size: Option<Ignored>,
    /// sizes are taken from the checkpoint
    pub target_image_size: Option<Ignored>,
    /// joints are named instead
    pub task_mode_name: Option<Ignored>,
    /// videos are not read from files
    pub video_backend: Option<Ignored>,
}

impl Gr00tWiring {
    /// Returns the files that it names, whose contents decide the actions.
    pub fn files(&self) -> impl Iterator<Item = &PathBuf> {
        let files = [
            &self.policy_config_yaml_path,
            &self.policy_joints_config_path,
            &self.state_joints_config_path,
            &self.action_joints_config_path,
        ];
        files.into_iter().flatten()
    }
}

/// Element type of a computation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Dtype {
    Bfloat16,
    Float32,
}

/// How prompts of different lengths are inferred: one after the other, or in padded batches as in
/// the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum Batching {
    #[default]
    ByLength,
    Padded,
}

/// Of a TorchScript module.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Torchscript {
    /// the module, as `torch.jit.save` writes it
    #[schemars(extend("path" = "file"))]
    pub model_path: PathBuf,
    /// a `tokenizer.json` [default: UTF-8 bytes as tokens]
    #[schemars(extend("path" = "file"))]
    pub tokenizer_path: Option<PathBuf>,
    /// number of tokens of an instruction
    #[serde(default = "number::<64, Count>")]
    pub max_tokens: Count,
    /// cameras of the environment, in order [default: all]
    pub cameras: Option<OneOrMany>,
    /// state vectors of the environment, in order [default: all]
    pub state_keys: Option<OneOrMany>,
    /// number of actions to execute [default: all actions of a chunk]
    pub action_chunk_length: Option<Count>,
}

/// Of a `.pt2` package.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Exported {
    /// the package, as `export_policy.py` writes it
    #[schemars(extend("path" = "package"))]
    pub model_path: PathBuf,
    /// a `tokenizer.json`, for a package whose tokens come from one [default: none]
    #[schemars(extend("path" = "file"))]
    pub tokenizer_path: Option<PathBuf>,
    /// names of the environment's cameras by those of the package [default: the same names]
    #[serde(default)]
    pub cameras: BTreeMap<String, String>,
    /// names of the environment's state vectors by those of the package [default: the same names]
    #[serde(default)]
    pub states: BTreeMap<String, String>,
    /// part of the seed of the noise
    #[serde(default)]
    pub seed: u64,
    /// number of actions to execute [default: all actions of a chunk]
    pub action_chunk_length: Option<Count>,
    /// whether each batch size is captured on a GPU and replayed
    #[serde(default = "yes")]
    pub cuda_graphs: bool,
}

/// The setting that declares GPU memory in GiB.
pub const DECLARED_MEMORY: &str = "policy_memory_gb";

/// Of any Python class or function.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Python {
    /// a callable or class that makes the policy
    pub policy: PyName,
    /// keyword arguments of the factory [default: none]
    pub policy_kwargs: Option<Map<String, Value>>,
    /// the factory's `seed`
    #[serde(default)]
    pub seed: u64,
    /// number of actions to execute [default: all actions of a chunk]
    pub action_chunk_length: Option<Count>,
    /// The process.
    #[serde(flatten)]
    pub process: PolicyProcess,
}

/// Of a LeRobot checkpoint.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Lerobot {
    /// folder of the checkpoint, or the name of a downloaded model
    #[schemars(extend("path" = "checkpoint"))]
    pub model_path: PathBuf,
    /// `cameras` and `states` of the environment for the inputs of the checkpoint
    /// [default: by name]
    pub mapping: Option<Map<String, Value>>,
    /// text that the policy gets instead of the instruction [default: the instruction]
    pub task: Option<String>,
    /// number of actions to execute [default: `n_action_steps` of the checkpoint]
    pub action_chunk_length: Option<Count>,
    /// fields of the checkpoint's configuration, as `--policy.FIELD=VALUE` of `lerobot-eval`
    /// [default: none]
    pub config_overrides: Option<Map<String, Value>>,
    /// part of the seed of the noise
    #[serde(default)]
    pub seed: u64,
    /// The process.
    #[serde(flatten)]
    pub process: PolicyProcess,
}

/// Of the process of a policy in Python.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct PolicyProcess {
    /// interpreter, or the folder of its venv [default: `python3` from `PATH`]
    #[schemars(extend("path" = "interpreter"))]
    pub python: Option<PathBuf>,
    /// environment variables; null removes one [default: none]
    pub env: Option<Map<String, Value>>,
    /// time limit of a call of `act`
    #[serde(default = "number::<300, Seconds>")]
    #[schemars(extend("place" = true))]
    pub act_timeout_s: Seconds,
    /// time limit from the start of the interpreter until the policy is made
    #[serde(default = "number::<600, Seconds>")]
    #[schemars(extend("place" = true))]
    pub startup_timeout_s: Seconds,
    /// how often a worker that died or hung is started again, for each rank and job
    #[serde(default = "number::<3, u64>")]
    #[schemars(range(min = 0, max = 1000), extend("place" = true))]
    pub max_restarts: u64,
    /// GPU memory of the worker in GiB, for `rrun fit` [default: unknown]
    #[schemars(range(min = 0.0, max = 4096.0), extend("place" = true))]
    pub policy_memory_gb: Option<f64>,
}
