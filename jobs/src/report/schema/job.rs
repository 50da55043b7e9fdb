//! Jobs and groups of them: counts, rates, and what they cost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{JobIndex, Status};
use crate::journal::Quantiles;

/// Counts and rates of a set of episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Expected; `null` while a job has not said how many it has.
    pub expected: Option<u64>,
    /// How many policies the episodes are of: a rate over several is a rate of none of them.
    #[serde(default)]
    pub policies: u64,
    /// Found, each once.
    pub episodes: u64,
    /// Found without an error.
    pub scored: u64,
    /// Solved.
    pub successes: u64,
    /// Broken by an error.
    pub errors: u64,
    /// `successes / episodes`.
    pub success_rate: Option<f64>,
    /// Wilson interval of it at 95 %.
    pub wilson95: Option<[f64; 2]>,
    /// `successes / scored`.
    pub completion_only_rate: Option<f64>,
    /// Wilson interval of that at 95 %.
    #[serde(default)]
    pub completion_only_wilson95: Option<[f64; 2]>,
    /// Share of the scored that were solved after their last step (RLinf's `success_at_end`); below
    /// `completion_only_rate` only where episodes go on after success.
    #[serde(default)]
    pub success_at_end: Option<f64>,
    /// Mean sum of rewards of the scored.
    pub mean_return: Option<f64>,
    /// Mean largest reward of a step, over the scored that have one.
    #[serde(default)]
    pub mean_max_reward: Option<f64>,
    /// Mean steps of the scored.
    pub mean_length: Option<f64>,
    /// Steps whose action had a number beyond its range.
    #[serde(default)]
    pub actions_out_of_bounds: u64,
}

/// One job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Name.
    pub name: String,
    /// Position in the file.
    pub index: JobIndex,
    /// Environment.
    pub environment: String,
    /// Policy.
    pub policy_type: String,
    /// What the policy was told, where it was the same in all episodes.
    #[serde(default)]
    pub instruction: Option<String>,
    /// Copies of the environment, of all ranks that share the job.
    pub num_envs: usize,
    /// Ranks that ran episodes of it.
    pub ranks: Vec<usize>,
    /// Nodes of these ranks.
    #[serde(default)]
    pub nodes: Vec<usize>,
    /// Devices of these ranks.
    #[serde(default)]
    pub devices: Vec<String>,
    /// How it stands.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// How often it was begun; of several ranks that share it, by the one that began most often.
    pub attempts: u64,
    /// Log of the rank in which it failed last, relative to the run folder.
    #[serde(default)]
    pub log: Option<String>,
    /// What was in effect, as its last start said.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
    /// By Arena's names, as in `metrics.json`, and the means of what a policy counted itself (`metrics` of an episode).
    #[serde(default)]
    pub metrics: BTreeMap<String, f64>,
    /// Seconds, over all attempts that ended; of several ranks that share it, of the busiest.
    pub wall_s: f64,
    /// Steps of all environments.
    pub env_steps: u64,
    /// Steps a second.
    pub steps_per_s: Option<f64>,
    /// Frames rendered.
    pub frames: u64,
    /// Calls of the policy.
    pub policy_calls: u64,
    /// Seconds in which the policy inferred.
    pub infer_busy_s: f64,
    /// Seconds in which at least one environment was at work; what both add up to beyond `wall_s` was overlapped.
    pub sim_busy_s: f64,
    /// Episodes that began again because the process of their environment was lost.
    #[serde(default)]
    pub env_restarts: u64,
    /// How often the loop waited for files.
    pub record_waits: u64,
    /// Seconds that it waited for them.
    pub record_wait_s: f64,
    /// Milliseconds of a policy call, last attempt, slowest rank.
    pub infer_ms: Quantiles,
    /// Milliseconds of a step of all due environments of a group, last attempt, slowest rank.
    pub sim_ms: Quantiles,
    /// Highest resident memory of a rank up to its end.
    pub peak_rss_bytes: u64,
    /// Most memory of a GPU that libtorch held up to its end; `null` without one.
    #[serde(default)]
    pub peak_vram_bytes: Option<u64>,
    /// Of that, the most that was in tensors.
    #[serde(default)]
    pub peak_vram_allocated_bytes: Option<u64>,
    /// Most memory that the environments' processes of a rank took together, as it was sampled; `null` where they have no
    /// processes of their own.
    #[serde(default)]
    pub peak_env_bytes: Option<u64>,
    /// Most memory of GPUs that these processes held together.
    #[serde(default)]
    pub peak_env_vram_bytes: Option<u64>,
    /// It is an estimate, as the driver does not tell whose memory is whose: what the GPU held beyond libtorch's memory and
    /// what it held before the environments.
    #[serde(default)]
    pub env_vram_is_estimate: bool,
    /// Inferences that failed for want of memory and were tried again.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Rows of an inference that this came down to, in an earlier job of the checkpoint perhaps; 0 where not even one fitted.
    #[serde(default)]
    pub out_of_memory_batch: Option<u64>,
    /// Share of the time in which the GPU was at work, for whomever; `null` where the driver does not tell.
    #[serde(default)]
    pub gpu_busy: Option<f64>,
    /// Dataset files, relative to the run folder.
    pub datasets: Vec<String>,
    /// Video files, relative to the run folder.
    pub videos: Vec<String>,
}

/// The jobs of one policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRates {
    /// Its type.
    pub policy_type: String,
    /// What it was read from, where it says so: two paths of one type are two policies.
    pub path: Option<String>,
    /// How many jobs have it.
    pub jobs: u64,
    /// Unweighted mean of their success rates.
    pub mean_task_success_rate: Option<f64>,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A set of jobs with something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// `task`, `policy`, `eval_set`, or `variations.<key>`.
    pub by: String,
    /// Its value.
    pub value: String,
    /// How many jobs have it.
    #[serde(default)]
    pub jobs: u64,
    /// Unweighted mean of their success rates.
    #[serde(default)]
    pub mean_task_success_rate: Option<f64>,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
}
