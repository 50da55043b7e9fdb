//! The settings of the policies in a Python process.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::settings::kinds::{Count, PyName, Seconds, number};

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
