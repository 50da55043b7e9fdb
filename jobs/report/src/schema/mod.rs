//! The fields of `report.json`. `docs/report.md` has the same list, and a test compares the two.

use jobs::episode::{End, VideoRef};
use jobs::journal::{Decision, EnvLost};
use serde::{Deserialize, Serialize};

mod job;
mod run;

pub use job::*;
pub use run::*;

/// Maximum number of entries in a list of [`Report`]. The count beside a list includes all entries,
/// and `rrun verify` lists all of them.
pub const LISTED: usize = 1000;

/// The report of a run, `report.json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Schema of the file: `rrun/report/1`.
    pub schema: String,
    /// Whether an episode, a rank or a job is missing.
    pub partial: bool,
    /// When and where the run took place.
    pub run: RunReport,
    /// What was asked for, and the settings in effect.
    pub config: ConfigReport,
    /// One entry for each policy, in file order. With several policies, these are the rates to look
    /// at first.
    pub per_policy: Vec<PolicyRates>,
    /// What a sequential test has decided; `None` if there was none (`--stop-when`), or if the run
    /// was continued since.
    pub decision: Option<Decision>,
    /// Counts and rates over all jobs, whatever their policies.
    pub overall: Rates,
    /// The same over the jobs under control: all but the variants. A rate over variants depends on
    /// which of them somebody chose, so these are the rates to look at first.
    pub controls: Rates,
    /// Unweighted mean of the success rates of the jobs under control.
    pub mean_task_success_rate: Option<f64>,
    /// One entry for each job, in file order.
    pub per_job: Vec<JobReport>,
    /// One entry for each task, policy, set of tasks and variation.
    pub per_group: Vec<GroupReport>,
    /// Variants compared with their controls: an entry for each variant of a job, for each variant by
    /// name, and for each group of variants.
    pub variations: Vec<VariationReport>,
    /// One entry for each series of jobs that are equal but for their latency.
    pub per_latency: Vec<LatencySeries>,
    /// One entry for each journal: a rank, or in a merged folder a rank of a run.
    pub per_rank: Vec<RankReport>,
    /// Episodes that were expected but not found, the first [`LISTED`].
    pub missing: Vec<EpisodeId>,
    /// Number of missing episodes.
    pub missing_count: u64,
    /// Episodes that were scored more than once, the first [`LISTED`]; of each, the first scored
    /// line counts.
    pub duplicates: Vec<Duplicate>,
    /// Number of episodes that were scored more than once.
    pub duplicates_count: u64,
    /// Errors of jobs, then of episodes, the first [`LISTED`].
    pub failures: Vec<FailureReport>,
    /// Number of errors.
    pub failures_count: u64,
    /// Reasons of the errors, the most frequent first.
    pub failures_by_reason: Vec<Reason>,
    /// Episodes that were scored and not solved, a few of each job, as a place to start looking.
    pub unsolved: Vec<Unsolved>,
    /// Number of episodes that were scored and not solved.
    pub unsolved_count: u64,
    /// Lost environment processes, the first [`LISTED`]; their episodes were started again.
    pub env_losses: Vec<EnvLost>,
    /// Number of lost environment processes.
    pub env_losses_count: u64,
}

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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
