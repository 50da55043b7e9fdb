//! What `report.json` holds.

use serde::{Deserialize, Serialize};

use crate::job::{JobIndex, Status};
use crate::journal::Quantiles;

/// Everything that came out of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `rrun/report/1`.
    pub schema: String,
    /// Something is missing: an episode, a rank, a job.
    pub partial: bool,
    /// When, where, by what.
    pub run: Run,
    /// What was asked for.
    pub config: Config,
    /// Over all jobs.
    pub overall: Rates,
    /// Unweighted mean of the jobs' success rates.
    pub mean_task_success_rate: Option<f64>,
    /// One entry a job, in file order.
    pub per_job: Vec<JobReport>,
    /// By environment and by policy.
    pub per_group: Vec<GroupReport>,
    /// One entry a rank.
    pub per_rank: Vec<RankReport>,
    /// Expected and not found.
    pub missing: Vec<EpisodeId>,
    /// Found more than once; the first is counted.
    pub duplicates: Vec<EpisodeId>,
    /// Errors of episodes and jobs.
    pub failures: Vec<Failure>,
    /// Processes of environments that were lost; their episodes began again.
    #[serde(default)]
    pub env_losses: Vec<EnvLoss>,
}

/// When, where, by what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// UTC: first line of any journal.
    pub started: Option<String>,
    /// UTC: when the report was made.
    pub ended: String,
    /// Command line.
    pub argv: Vec<String>,
    /// Ranks of the launch that made the report.
    pub world_size: usize,
    /// Machines.
    pub hosts: Vec<String>,
    /// How the ranks' lines came together.
    pub gathered_by: String,
    /// Ranks that did not deliver.
    pub missing_ranks: Vec<usize>,
    /// Why it ended early.
    pub stopped: Option<String>,
    /// Version of `rrun`.
    pub rrun: String,
}

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Jobs file.
    pub jobs_file: String,
    /// Identity of its bytes.
    pub sha256: String,
    /// Base seed.
    pub seed: u64,
    /// Ranks when the run was begun.
    pub world_size_at_start: usize,
}

/// Counts and rates of a set of episodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Expected; `null` while a job has not said how many it has.
    pub expected: Option<u64>,
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
    /// Share of the scored that were solved after their last step (RLinf's `success_at_end`); below
    /// `completion_only_rate` only where episodes go on after success.
    #[serde(default)]
    pub success_at_end: Option<f64>,
    /// Mean sum of rewards of the scored.
    pub mean_return: Option<f64>,
    /// Mean steps of the scored.
    pub mean_length: Option<f64>,
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
    /// Copies of the environment, of all ranks that share the job.
    pub num_envs: usize,
    /// Ranks that ran episodes of it.
    pub ranks: Vec<usize>,
    /// How it stands.
    pub status: Status,
    /// Why it failed.
    pub error: Option<String>,
    /// How often it was begun; of several ranks that share it, by the one that began most often.
    pub attempts: u64,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
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
    /// Dataset files, relative to the run folder.
    pub datasets: Vec<String>,
    /// Video files, relative to the run folder.
    pub videos: Vec<String>,
}

/// A set of jobs with something in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    /// `task` or `policy`.
    pub by: String,
    /// Its value.
    pub value: String,
    /// Counts and rates.
    #[serde(flatten)]
    pub rates: Rates,
}

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Which.
    pub rank: usize,
    /// Machine.
    pub host: String,
    /// Device and why.
    pub device: String,
    /// Why that one.
    pub device_reason: String,
    /// How often it was begun.
    pub starts: u64,
    /// Seconds in jobs.
    pub busy_s: f64,
    /// Seconds elsewhere: start, waiting for the others.
    pub idle_s: f64,
    /// Episodes it ran.
    pub episodes: u64,
}

/// Names one episode.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EpisodeId {
    /// Job.
    pub job: String,
    /// Number within it.
    pub episode: u64,
}

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Job.
    pub job: String,
    /// Number within it; `null` when the job itself failed.
    pub episode: Option<u64>,
    /// What happened.
    pub reason: String,
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
