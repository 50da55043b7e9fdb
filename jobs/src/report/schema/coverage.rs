//! What is missing, there twice, broken, or not solved.

use serde::{Deserialize, Serialize};

use crate::episode::{End, VideoRef};

/// Names one episode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EpisodeId {
    /// Job.
    pub job: String,
    /// Number within it.
    pub episode: u64,
}

/// An episode that was scored more than once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicate {
    /// Job.
    pub job: String,
    /// Number within it.
    pub episode: u64,
    /// Whether seed, end, length and return are the same each time.
    #[serde(default)]
    pub agree: bool,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Job.
    pub job: String,
    /// Number within it; `null` when the job itself failed.
    pub episode: Option<u64>,
    /// Where.
    #[serde(default)]
    pub rank: Option<usize>,
    /// What happened.
    pub reason: String,
    /// Log of that rank, relative to the run folder.
    #[serde(default)]
    pub log: Option<String>,
}

/// How often something broke for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What happened.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// An episode that was scored and not solved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unsolved {
    /// Job.
    pub job: String,
    /// Number within it.
    pub episode: u64,
    /// See [`crate::seed`].
    pub seed: u64,
    /// Where it ran.
    pub rank: usize,
    /// How it ended.
    pub end: End,
    /// Steps taken.
    pub length: u64,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub return_: f64,
    /// Largest reward of a step.
    #[serde(default)]
    pub max_reward: Option<f64>,
    /// Where to see it.
    pub video: Option<VideoRef>,
    /// The video that has it alone, relative to the run folder.
    pub episode_video: Option<String>,
}

/// The process of an environment was lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnvLoss {
    /// Job.
    pub job: String,
    /// The episode that it was in.
    pub episode: u64,
    /// Rank.
    pub rank: usize,
    /// Environment of that rank.
    pub env: usize,
    /// Steps that the episode had taken.
    pub step: u64,
    /// What happened.
    pub reason: String,
    /// The last lines of the process.
    pub stderr: Vec<String>,
    /// UTC.
    pub at: String,
}
