//! The fields of `report.json`. `docs/report.md` has the same list, and a test compares the two.

use jobs::journal::Decision;
use serde::{Deserialize, Serialize};

mod coverage;
mod job;
mod latency;
mod rank;
mod run;
mod variation;

pub use coverage::{Duplicate, EnvLoss, EpisodeId, FailureReport, Reason, Unsolved};
pub use job::{GroupReport, JobReport, PolicyRates, Rates};
pub use latency::{LatencyMode, LatencyPoint, LatencyReport, LatencySeries, LatencyUnit};
pub use rank::{HowEnded, JobSpan, LifeReport, RankReport};
pub use run::{ConfigReport, GpuReport, LaunchReport, PolicyReport, RunReport};
pub use variation::{VariationReport, VariationScope};

/// Maximum number of entries in a list of [`Report`]. The count beside a list includes all entries,
/// and `rrun verify` lists all of them.
pub const LISTED: usize = 1000;

/// The report of a run, `report.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    pub env_losses: Vec<EnvLoss>,
    /// Number of lost environment processes.
    pub env_losses_count: u64,
}
