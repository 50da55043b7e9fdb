//! The entries of a report about missing, duplicate, failed and unsolved episodes.

use jobs::episode::{End, VideoRef};
use serde::{Deserialize, Serialize};

/// Identifies one episode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EpisodeId {
    /// Name of the job.
    pub job: String,
    /// Number within the job.
    pub episode: u64,
}

/// An episode that was scored more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicate {
    /// Name of the job.
    pub job: String,
    /// Number within the job.
    pub episode: u64,
    /// Whether seed, end, length and return are the same each time.
    pub agree: bool,
}

/// An error of an episode or job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureReport {
    /// Name of the job.
    pub job: String,
    /// Number within the job; `null` if the job itself failed.
    pub episode: Option<u64>,
    /// Rank in which the error occurred.
    pub rank: Option<usize>,
    /// The error message.
    pub reason: String,
    /// Log of that rank, relative to the run folder.
    pub log: Option<String>,
}

/// How often errors had one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The error message.
    pub reason: String,
    /// Number of errors.
    pub count: u64,
}

/// An episode that was scored and not solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unsolved {
    /// Name of the job.
    pub job: String,
    /// Number within the job.
    pub episode: u64,
    /// Seed of the episode, see [`jobs::seed`].
    pub seed: u64,
    /// Rank that ran the episode.
    pub rank: usize,
    /// How the episode ended.
    pub end: End,
    /// Number of steps.
    pub length: u64,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub return_: f64,
    /// Largest reward of a step.
    pub max_reward: Option<f64>,
    /// Video that shows the episode, and its position there.
    pub video: Option<VideoRef>,
    /// Video of this episode alone, relative to the run folder.
    pub episode_video: Option<String>,
}

/// A lost environment process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvLoss {
    /// Name of the job.
    pub job: String,
    /// The episode that was running.
    pub episode: u64,
    /// Rank of the environment.
    pub rank: usize,
    /// Index of the environment within the rank.
    pub env: usize,
    /// Steps that the episode had taken.
    pub step: u64,
    /// What happened to the process.
    pub reason: String,
    /// The last lines that the process wrote to stderr.
    pub stderr: Vec<String>,
    /// When the process was lost, RFC 3339 in UTC.
    pub at: String,
}
