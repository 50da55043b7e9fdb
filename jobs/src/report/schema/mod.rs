//! What `report.json` holds, field by field; `docs/report.md` has the same list, and a test compares the two.

use serde::{Deserialize, Serialize};

mod coverage;
mod job;
mod rank;
mod run;

pub use coverage::{Duplicate, EnvLoss, EpisodeId, Failure, Reason, Unsolved};
pub use job::{GroupReport, JobReport, PolicyRates, Rates};
pub use rank::{HowEnded, Life, RankReport, Span};
pub use run::{Config, GpuReport, Launch, PolicyReport, Run};

/// Entries that a list of [`Report`] has at most; the count beside it is of all. `rrun verify` lists them all.
pub const LISTED: usize = 1000;

/// Everything that came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `rrun/report/1`.
    pub schema: String,
    /// Something is missing: an episode, a rank, a job.
    pub partial: bool,
    /// When, where, by what.
    pub run: Run,
    /// What was asked for, and what was in effect.
    pub config: Config,
    /// One entry a policy, in file order: what to look at first where there are several.
    #[serde(default)]
    pub per_policy: Vec<PolicyRates>,
    /// Over all jobs, of whatever policies.
    pub overall: Rates,
    /// Unweighted mean of the jobs' success rates.
    pub mean_task_success_rate: Option<f64>,
    /// One entry a job, in file order.
    pub per_job: Vec<JobReport>,
    /// By task, policy, set of tasks and each variation.
    pub per_group: Vec<GroupReport>,
    /// One entry a journal: of a rank, in a merged folder of a rank of a run.
    pub per_rank: Vec<RankReport>,
    /// Expected and not found, the first [`LISTED`].
    pub missing: Vec<EpisodeId>,
    /// How many are missing.
    #[serde(default)]
    pub missing_count: u64,
    /// Scored more than once, the first [`LISTED`]; the first line of each is counted.
    pub duplicates: Vec<Duplicate>,
    /// How many were scored more than once.
    #[serde(default)]
    pub duplicates_count: u64,
    /// Errors of jobs, then of episodes, the first [`LISTED`].
    pub failures: Vec<Failure>,
    /// How many errors there are.
    #[serde(default)]
    pub failures_count: u64,
    /// Their reasons, the most frequent first.
    #[serde(default)]
    pub failures_by_reason: Vec<Reason>,
    /// Scored and not solved, a few of each job: where to look first.
    #[serde(default)]
    pub unsolved: Vec<Unsolved>,
    /// How many were scored and not solved.
    #[serde(default)]
    pub unsolved_count: u64,
    /// Processes of environments that were lost, the first [`LISTED`]; their episodes began again.
    #[serde(default)]
    pub env_losses: Vec<EnvLoss>,
    /// How many were lost.
    #[serde(default)]
    pub env_losses_count: u64,
}
