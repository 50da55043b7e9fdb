//! The entries of a report about jobs: their counts, rates, costs and latency, alone and in groups,
//! and variants beside their controls.

use std::collections::BTreeMap;

use jobs::costs::Costs;
use jobs::job::{JobIndex, Status};
use jobs::journal::Quantiles;
use jobs::latency::Hold;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::stats::SolvedRate;

/// Counts and rates of a set of episodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Number of expected episodes; `null` as long as it is unknown.
    pub expected: Option<u64>,
    /// Number of policies that ran the episodes. A rate over several policies describes none of
    /// them.
    pub policies: u64,
    /// Number of distinct episodes found.
    pub episodes: u64,
    /// Number of episodes found without an error.
    pub scored: u64,
    /// Number of solved episodes.
    pub successes: u64,
    /// Number of episodes that ended with an error.
    pub errors: u64,
    /// `successes / episodes`.
    pub success_rate: Option<f64>,
    /// Wilson interval of `success_rate` at 95 %.
    pub wilson95: Option<[f64; 2]>,
    /// `successes / scored`.
    pub completion_only_rate: Option<f64>,
    /// Wilson interval of `completion_only_rate` at 95 %.
    pub completion_only_wilson95: Option<[f64; 2]>,
    /// Share of the scored episodes that were solved after their last step (RLinf's
    /// `success_at_end`). It is below `completion_only_rate` only if episodes continue after
    /// success.
    pub success_at_end: Option<f64>,
    /// Mean sum of rewards of the scored episodes.
    pub mean_return: Option<f64>,
    /// Mean largest reward of a step, over the scored episodes that have one.
    pub mean_max_reward: Option<f64>,
    /// Mean number of steps of the scored episodes.
    pub mean_length: Option<f64>,
    /// Number of steps whose action had a value out of range.
    pub actions_out_of_bounds: u64,
}

/// The report of one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobReport {
    /// Name of the job.
    pub name: String,
    /// Position in the jobs file.
    pub index: JobIndex,
    /// Name of the control job, if the job is a variant.
    pub variant_of: Option<String>,
    /// Name of the environment.
    pub environment: String,
    /// Policy type.
    pub policy_type: String,
    /// Instruction of the policy, if it was the same in all episodes.
    pub instruction: Option<String>,
    /// Number of copies of the environment, over all ranks that share the job.
    pub num_envs: usize,
    /// Ranks that ran episodes of the job.
    pub ranks: Vec<usize>,
    /// Nodes of these ranks.
    pub nodes: Vec<usize>,
    /// Devices of these ranks.
    pub devices: Vec<String>,
    /// Status of the job.
    pub status: Status,
    /// Why the job failed.
    pub error: Option<String>,
    /// How often the job was begun; if several ranks share it, the largest count of a rank.
    pub attempts: u64,
    /// Log of the rank in which the job failed last, relative to the run folder.
    pub log: Option<String>,
    /// Settings in effect at its last start.
    pub settings: BTreeMap<String, Value>,
    /// Counts and rates of its episodes.
    #[serde(flatten)]
    pub rates: Rates,
    /// Its latency, and how much of it its episodes felt; `null` without one.
    pub latency: Option<LatencyReport>,
    /// Metrics by Arena's names, as in `metrics.json`, and the means of the metrics that a policy
    /// reports itself (`metrics` of an episode).
    pub metrics: BTreeMap<String, f64>,
    /// Seconds over all attempts that ended; if several ranks share the job, those of the busiest
    /// rank.
    pub wall_s: f64,
    /// Steps per second.
    pub steps_per_s: Option<f64>,
    /// What it has cost, over all attempts and ranks.
    #[serde(flatten)]
    pub costs: Costs,
    /// Seconds of inference.
    pub infer_busy_s: f64,
    /// Seconds in which at least one environment was stepping. The sum of this and `infer_busy_s`
    /// beyond `wall_s` was overlapped.
    pub sim_busy_s: f64,
    /// Latency of a policy call in milliseconds: last attempt, slowest rank.
    pub infer_ms: Quantiles,
    /// Latency of a step of all due environments of a group in milliseconds: last attempt, slowest
    /// rank.
    pub sim_ms: Quantiles,
    /// Share of the time in which the GPU was busy for any process; `null` if the driver does not
    /// report it.
    pub gpu_busy: Option<f64>,
    /// Dataset files, relative to the run folder.
    pub datasets: Vec<String>,
    /// Video files, relative to the run folder.
    pub videos: Vec<String>,
}

/// The jobs of one policy that are under control, see [`Report::controls`](crate::Report::controls).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PolicyRates {
    /// Policy type.
    pub policy_type: String,
    /// Path that the policy was read from, if known. Two paths of one type are two policies.
    pub path: Option<String>,
    /// Number of these jobs.
    pub jobs: u64,
    /// Number of these that have a rate.
    pub rated_jobs: u64,
    /// Unweighted mean of the success rates of these jobs.
    pub mean_task_success_rate: Option<f64>,
    /// Counts and rates of their episodes.
    #[serde(flatten)]
    pub rates: Rates,
}

/// A set of jobs with a property in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// Name of the property: `task`, `policy`, `eval_set` or `variations.<key>`.
    pub by: String,
    /// Value of the property.
    pub value: String,
    /// Number of jobs with this value.
    pub jobs: u64,
    /// Unweighted mean of the success rates of these jobs.
    pub mean_task_success_rate: Option<f64>,
    /// Counts and rates of their episodes.
    #[serde(flatten)]
    pub rates: Rates,
}

/// The latency of a job, and how much of it its episodes felt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyReport {
    /// How it was given.
    pub mode: LatencyMode,
    /// Steps or milliseconds of an inference, as given; `null` if it was measured.
    pub given: Option<f64>,
    /// What the environment did without an action.
    pub hold: Hold,
    /// Number of inferences during which an episode went on: all but the first of each episode.
    pub inferences: u64,
    /// Fewest steps of such an inference; `null` if there was none.
    pub min_steps: Option<u64>,
    /// Mean steps of such an inference.
    pub mean_steps: Option<f64>,
    /// Most steps of such an inference.
    pub max_steps: Option<u64>,
    /// Number of steps for which no chunk had an action.
    pub held_actions: u64,
}

/// How a latency was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyMode {
    /// As steps of the environment.
    Steps,
    /// As milliseconds.
    Ms,
    /// Not at all: it is the time that the inference took.
    Measured,
}

/// Jobs that are equal but for their latency, in ascending order of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySeries {
    /// Name of the environment.
    pub environment: String,
    /// Policy type.
    pub policy_type: String,
    /// Unit of the latencies.
    pub unit: LatencyUnit,
    /// The jobs.
    pub points: Vec<LatencyPoint>,
}

/// Unit of the latencies of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LatencyUnit {
    /// Steps of the environment; for a latency in milliseconds or a measured one the mean.
    Steps,
    /// Milliseconds.
    Ms,
}

/// The success rate of a job at its latency.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// Name of the job.
    pub job: String,
    /// Its latency in the unit of the series.
    pub latency: f64,
    /// How many of its episodes were solved.
    #[serde(flatten)]
    pub rates: SolvedRate,
}

/// What an entry of `variations` sums up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VariationScope {
    /// One variant of one job.
    Job,
    /// The variants of one name, over all jobs with the same policy.
    Variant,
    /// All variants of a group, over all jobs with the same policy.
    Group,
}

/// Variants, compared with their controls episode by episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariationReport {
    /// Whether it is about a job, a variant or a group.
    pub by: VariationScope,
    /// Name of the variant's job, of the variant, or of the group.
    pub name: String,
    /// Name of the control job; `null` if there are several.
    pub control: Option<String>,
    /// Name of the variant; `null` if there are several.
    pub variant: Option<String>,
    /// Groups of the variant; those of a group are the group itself.
    pub groups: Vec<String>,
    /// Policy type.
    pub policy_type: String,
    /// Path that the policy was read from, if known.
    pub path: Option<String>,
    /// Number of control jobs.
    pub jobs: u64,
    /// Number of variants, by name.
    pub variants: u64,
    /// Number of control episodes with at least one partner. An episode that ended with an error
    /// has no partner.
    pub control_episodes: u64,
    /// Number of pairs of a control episode and a variant's.
    pub pairs: u64,
    /// Number of pairs in which both were solved.
    pub both: u64,
    /// Number of pairs in which only the control was solved.
    pub only_control: u64,
    /// Number of pairs in which only the variant was solved.
    pub only_variant: u64,
    /// Number of pairs in which neither was solved.
    pub neither: u64,
    /// Share of the control episodes that were solved.
    pub control_rate: Option<f64>,
    /// Share of the variants of a control episode that were solved, mean over the control episodes.
    pub variant_rate: Option<f64>,
    /// `variant_rate − control_rate`.
    pub difference: Option<f64>,
    /// Interval of `difference` at 95 %, see [`crate::stats::matched`].
    pub interval95: Option<[f64; 2]>,
    /// Two-sided p-value of the hypothesis that the variants are as hard as the control; `null` if
    /// no outcome differs.
    pub p: Option<f64>,
    /// Difference of the sums of rewards, mean over the control episodes.
    pub return_difference: Option<f64>,
    /// Its interval at 95 %, by Student's t-distribution; `null` for a single control episode.
    pub return_interval95: Option<[f64; 2]>,
    /// Difference of the numbers of steps, mean over the control episodes.
    pub length_difference: Option<f64>,
    /// Its interval at 95 %, by Student's t-distribution; `null` for a single control episode.
    pub length_interval95: Option<[f64; 2]>,
}
