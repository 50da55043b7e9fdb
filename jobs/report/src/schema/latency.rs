//! The entries of a report about the latency of policies.

use jobs::latency::Hold;
use serde::{Deserialize, Serialize};

use crate::stats::SolvedRate;

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
