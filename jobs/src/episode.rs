//! One finished episode: a line of the journal and of `episodes.jsonl`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::job::JobIndex;

/// One finished episode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
    /// Name of the job.
    pub job: String,
    /// Position of the job in the plan. No line has it: the reader knows it by the name, see
    /// [`crate::journal::Accepted::judge`].
    #[serde(skip)]
    pub job_index: JobIndex,
    /// Number within the job, from 0.
    pub episode: u64,
    /// Seed of the episode, see [`crate::seed`].
    pub seed: u64,
    /// Rank that ran the episode.
    pub rank: usize,
    /// Index of the environment within the rank.
    pub env: usize,
    /// Number of the environment's build, from 0.
    pub rebuild: u64,
    /// Whether the task was solved; `null` if the episode ended with an error.
    pub success: Option<bool>,
    /// Whether the task was solved after the last step. It differs from `success` if the episode
    /// continues after success.
    pub success_at_end: Option<bool>,
    /// How the episode ended.
    pub end: End,
    /// Number of steps.
    pub length: u64,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub return_: f64,
    /// Largest reward of a step; `None` for an episode without a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_reward: Option<f64>,
    /// The instruction that the policy was given.
    pub language_instruction: String,
    /// Seconds from the reset to the last step.
    pub wall_s: f64,
    /// Number of action chunks that were inferred.
    pub infer_calls: u64,
    /// Number of steps whose action had a value out of range.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub actions_out_of_bounds: u64,
    /// The inferences during which the episode went on, for a job with `latency`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<FeltLatency>,
    /// When the episode ended, RFC 3339 in UTC.
    pub ended: String,
    /// The error that ended the episode; a crash is not a failure of the policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its demonstration in a dataset file, `data/<demo>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dataset: Option<DemoRef>,
    /// The video that shows the episode, and its position there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub video: Option<VideoRef>,
    /// Video of this episode alone, relative to the run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episode_video: Option<String>,
    /// Metrics of its policy by name: a planner's `planner_steps`, `num_invalid_actions`, tokens
    /// and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, f64>,
}

/// The inferences during which an episode went on: all but the first, for which it waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeltLatency {
    /// Number of inferences.
    pub inferences: u64,
    /// Sum of the steps that they took.
    pub steps: u64,
    /// Fewest steps of an inference, 0 if there was none.
    pub min_steps: u64,
    /// Most steps of an inference.
    pub max_steps: u64,
    /// Number of steps without an action of a chunk.
    pub held: u64,
}

impl FeltLatency {
    /// Counts an inference that took `steps` steps.
    pub fn add(&mut self, steps: u64) {
        self.min_steps = match self.inferences {
            0 => steps,
            _ => self.min_steps.min(steps),
        };
        self.max_steps = self.max_steps.max(steps);
        self.steps = self.steps.saturating_add(steps);
        self.inferences += 1;
    }

    /// Adds the counts of another episode.
    pub fn merge(&mut self, other: &Self) {
        self.min_steps = match (self.inferences, other.inferences) {
            (0, _) => other.min_steps,
            (_, 0) => self.min_steps,
            _ => self.min_steps.min(other.min_steps),
        };
        self.max_steps = self.max_steps.max(other.max_steps);
        self.steps = self.steps.saturating_add(other.steps);
        self.inferences = self.inferences.saturating_add(other.inferences);
        self.held = self.held.saturating_add(other.held);
    }

    /// Returns the mean steps of an inference; `None` without one.
    pub fn mean_steps(&self) -> Option<f64> {
        (self.inferences > 0).then(|| self.steps as f64 / self.inferences as f64)
    }
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The success predicate was true.
    Success,
    /// The task ended without success.
    Terminated,
    /// The episode reached its time limit.
    TimeLimit,
    /// An error ended the episode, see [`Episode::error`].
    #[default]
    Error,
}

/// A demonstration in a dataset file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DemoRef {
    /// Path of the file, relative to the run folder.
    pub file: String,
    /// Name of the group below `data`.
    pub demo: String,
}

/// The part of a video file that shows an episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoRef {
    /// Path of the file, relative to the run folder.
    pub file: String,
    /// Index of the episode's first frame.
    pub first_frame: u64,
    /// Number of frames of the episode.
    pub frames: u64,
    /// Frames per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
}

/// The result of an episode, which must be the same no matter where it ran. Certificates have it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpisodeOutcome {
    /// Number within the job.
    pub episode: u64,
    /// Seed of the episode, see [`crate::seed`].
    pub seed: u64,
    /// Whether the task was solved; `None` if the episode ended with an error.
    pub success: Option<bool>,
    /// How the episode ended.
    pub end: End,
    /// Number of steps.
    pub length: u64,
    /// Sum of rewards.
    #[serde(rename = "return")]
    pub return_: f64,
}

impl EpisodeOutcome {
    /// Returns in what another run of the episode differs: seed, success, end, number of steps, or
    /// any bit of the return.
    pub fn difference(&self, again: &Self) -> Option<String> {
        let texts = |outcome: &Self| {
            let success = outcome.success.map(|success| success.to_string());
            [
                outcome.seed.to_string(),
                success.unwrap_or_else(|| "unknown".to_owned()),
                format!("{:?}", outcome.end),
                outcome.length.to_string(),
                format!("{:?}", outcome.return_),
            ]
        };
        let names = ["seed", "success", "end", "length", "return"];
        let pairs = names
            .into_iter()
            .zip(texts(self).into_iter().zip(texts(again)));
        let words: Vec<_> = pairs
            .filter(|(_, (before, after))| before != after)
            .map(|(name, (before, after))| format!("{name} {before}, then {after}"))
            .collect();
        (!words.is_empty()).then(|| words.join("; "))
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Returns whether a line about an episode counts instead of another one: the first that was scored
/// does, otherwise the last error. Both are given by whether they were scored, and when.
pub fn counts_instead<T: Ord>(this: (bool, T), other: (bool, T)) -> bool {
    match (this.0, other.0) {
        (true, true) => this.1 < other.1,
        (false, false) => this.1 > other.1,
        (is_scored, _) => is_scored,
    }
}

impl Episode {
    /// Returns whether the episode was scored: no error ended it.
    pub fn is_scored(&self) -> bool {
        self.error.is_none()
    }

    /// Returns the fields that must be the same no matter where the episode ran.
    pub fn outcome(&self) -> EpisodeOutcome {
        EpisodeOutcome {
            episode: self.episode,
            seed: self.seed,
            success: self.is_scored().then_some(self.success == Some(true)),
            end: self.end,
            length: self.length,
            return_: self.return_,
        }
    }
}
