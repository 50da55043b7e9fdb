//! One finished episode: a line of the journal and of `episodes.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::JobIndex;

/// One finished episode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Name of the job.
    pub job: String,
    /// Position of the job in its file.
    pub job_index: JobIndex,
    /// Number within the job, from 0.
    pub episode: u64,
    /// See [`crate::seed`].
    pub seed: u64,
    /// Where it ran.
    pub rank: usize,
    /// Copy of the environment within the rank.
    pub env: usize,
    /// Which build of the environment, from 0.
    pub rebuild: u64,
    /// Whether the task was solved; `null` when an error ended it.
    pub success: Option<bool>,
    /// Whether the task was solved after the last step: differs from `success` where an episode goes on after that.
    #[serde(default)]
    pub success_at_end: Option<bool>,
    /// How it ended.
    pub end: End,
    /// Steps taken.
    pub length: u64,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub return_: f64,
    /// Largest reward of a step; none of an episode without a step, and of one that an older version ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reward: Option<f64>,
    /// The instruction that the policy was given.
    pub language_instruction: String,
    /// Seconds from reset to the last step.
    pub wall_s: f64,
    /// Chunks inferred for it.
    pub infer_calls: u64,
    /// Steps whose action had a number beyond its range.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub actions_out_of_bounds: u64,
    /// UTC, when it ended.
    pub ended: String,
    /// What broke it; a crash is not a failure of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `data/<demo>` in the dataset file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DemoRef>,
    /// Where to see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoRef>,
    /// The video that has it alone, relative to the run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode_video: Option<String>,
    /// What its policy counted, by name: a planner's `planner_steps`, `num_invalid_actions`, tokens and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The success predicate held.
    Success,
    /// The task ended otherwise.
    Terminated,
    /// The time limit.
    TimeLimit,
    /// An error, see [`Episode::error`].
    Error,
}

/// A demonstration in a dataset file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DemoRef {
    /// File, relative to the run folder.
    pub file: String,
    /// Group below `data`.
    pub demo: String,
}

/// A span of a video file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoRef {
    /// File, relative to the run folder.
    pub file: String,
    /// First frame of the episode.
    pub first_frame: u64,
    /// Frames of the episode.
    pub frames: u64,
    /// Frames a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
}

/// What must be the same wherever an episode ran.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Position of the job in its file.
    pub job_index: JobIndex,
    /// Number within the job.
    pub episode: u64,
    /// Its seed.
    pub seed: u64,
    /// How it ended.
    pub end: End,
    /// Steps taken.
    pub length: u64,
    /// Sum of rewards.
    pub return_: f64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Episode {
    /// What must be the same wherever the episode ran.
    pub fn outcome(&self) -> Outcome {
        let Self { job_index, episode, seed, end, length, return_, .. } = *self;
        Outcome { job_index, episode, seed, end, length, return_ }
    }
}

#[cfg(test)]
mod sample;
