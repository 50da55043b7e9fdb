//! The lines of a journal.

use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::costs::Costs;
use crate::episode::Episode;
use crate::file::MAX_EPISODES;
use crate::job::JobIndex;
use crate::placement::Share;
use crate::refusal::Refusal;

/// The beginning of the line of an episode, as it is written.
pub const EPISODE: &[u8] = b"{\"type\":\"episode\",";

/// One line of a journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// A rank started or was restarted.
    Rank(Box<RankStart>),
    /// A job began in a rank.
    JobStart(JobStart),
    /// An episode began.
    EpisodeStart(EpisodeStart),
    /// An episode ended.
    Episode(Box<Episode>),
    /// The process of an environment was lost.
    EnvLost(Box<EnvLost>),
    /// A job ended in a rank.
    JobEnd(Box<JobEnd>),
    /// A rank ended: it has nothing left to do, or cannot continue.
    RankEnd(RankEnd),
    /// The checksum of the files of a policy.
    PolicyFiles(PolicyFiles),
    /// A sequential test has decided, or the run has ended without a decision.
    Decision(Box<Decision>),
}

/// Variables that choose the instructions of libtorch's operators on the CPU. The last bits of a
/// network's results depend on them.
pub const ROUNDING_VARIABLES: [&str; 3] = ["ATEN_CPU_CAPABILITY", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA"];

/// A rank started, with its environment, hardware and versions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStart {
    /// The rank (`RANK`).
    pub rank: usize,
    /// Number of ranks (`WORLD_SIZE`).
    pub world_size: usize,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart: u32,
    /// Round of the rendezvous, see [`crate::rank_env::RankEnv::round`].
    pub round: u32,
    /// Node of the rank (`GROUP_RANK`).
    pub node: usize,
    /// `LOCAL_RANK`.
    pub local_rank: Option<usize>,
    /// Process id.
    pub pid: u32,
    /// The GPU that the rank works on; `None` on the CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<RankGpu>,
    /// Versions by name: `rrun`, `libtorch`, `cuda`, `nccl`, `driver`, `mujoco`.
    pub versions: BTreeMap<String, String>,
    /// Host name.
    pub host: String,
    /// Model name of the processor. The last bits of a network's results depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Number of threads of libtorch's operators on the CPU. The last bits of a network's results
    /// depend on it, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Values of those [`ROUNDING_VARIABLES`] that are set.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub rounding: BTreeMap<String, String>,
    /// Device of the rank, as in `cpu` or `cuda:1`.
    pub device: String,
    /// Why this device was chosen.
    pub device_reason: String,
    /// When the rank started, RFC 3339 in UTC.
    pub started: String,
    /// The launch that the rank belongs to; the journal puts it on every line, see
    /// [`crate::journal::Stamp`].
    #[serde(default, skip_serializing)]
    pub launch: Option<String>,
}

/// A GPU of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RankGpu {
    /// Index among the visible devices of CUDA.
    pub index: usize,
    /// Model name.
    pub name: String,
    /// Size of its memory in bytes.
    pub bytes: u64,
    /// UUID, as in `GPU-…`.
    pub uuid: String,
}

/// An episode began in a rank. If a rank dies, these lines tell which episodes were running. They
/// are not synced to the disk: only a machine that loses power forgets them, and no episode causes
/// that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeStart {
    /// Name of the episode's job.
    pub job: String,
    /// See [`Episode::job_index`].
    #[serde(skip)]
    pub job_index: JobIndex,
    /// Number of the episode within the job.
    pub episode: u64,
    /// Rank that runs the episode.
    pub rank: usize,
    /// Index of the environment within the rank.
    pub env: usize,
    /// The episode ran alone, because it is suspected of having killed its rank before.
    pub alone: bool,
    /// When the episode began, RFC 3339 in UTC.
    pub started: String,
}

/// The checksum and size of the files of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFiles {
    /// Policy type, as the jobs name it.
    pub policy_type: String,
    /// File or folder of the policy, as the jobs name it.
    pub path: String,
    /// SHA-256 of the file. For a folder, SHA-256 of the lines `<sha256>  <name>` of its files
    /// sorted by name, as sha256sum prints them.
    pub sha256: String,
    /// Total size in bytes.
    pub bytes: u64,
    /// When the files were read, RFC 3339 in UTC.
    pub at: String,
}

/// A job began in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStart {
    /// Name of the job that began.
    pub job: String,
    /// See [`Episode::job_index`].
    #[serde(skip)]
    pub job_index: JobIndex,
    /// Rank that runs the job.
    pub rank: usize,
    /// Total number of episodes; `None` if the job ends after a number of steps.
    pub episodes: Option<u64>,
    /// Environments of a shared job that this rank has; `None` for a job that is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// How often the job has failed in this rank before.
    pub attempt: u32,
    /// Settings in effect: `chunk_length`, `action_horizon`, `dtype`, `device`, `max_batch`,
    /// `pipeline_stages`, `num_envs`, `seed`, `policy_path`, and what else the policy reports about
    /// itself.
    pub settings: BTreeMap<String, Value>,
    /// When the job began, RFC 3339 in UTC.
    pub started: String,
}

/// Who is to blame for the loss of an environment's process, as seen from one of the episodes in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blame {
    /// The episode itself: it was being reset or stepped, or no other was in the process.
    #[default]
    Own,
    /// Another episode in the same process.
    Neighbour,
    /// It or another episode in the same process.
    Unknown,
    /// No episode: the process could not be started.
    Start,
}

impl Blame {
    /// Returns whether the loss counts towards `--env-restarts`.
    pub fn is_counted(self) -> bool {
        matches!(self, Self::Own | Self::Start)
    }

    fn is_own(&self) -> bool {
        *self == Self::Own
    }
}

/// The process of an environment was lost, and its unfinished episode with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvLost {
    /// Name of the episode's job.
    pub job: String,
    /// See [`Episode::job_index`].
    #[serde(skip)]
    pub job_index: JobIndex,
    /// Rank of the environment.
    pub rank: usize,
    /// Index of the environment within the rank.
    pub env: usize,
    /// The episode, which is started again or counts as an error.
    pub episode: u64,
    /// Steps that the episode had taken.
    pub step: u64,
    /// How often the episode has lost its environment, this time included.
    pub attempt: u32,
    /// Who is to blame. If it is another episode, the loss is not counted against this one.
    #[serde(default, skip_serializing_if = "Blame::is_own")]
    pub blame: Blame,
    /// What happened to the process.
    pub reason: String,
    /// The last lines that the process wrote to stderr.
    pub stderr: Vec<String>,
    /// When the process was lost, RFC 3339 in UTC.
    pub at: String,
}

/// A job ended in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Name of the job that ended.
    pub job: String,
    /// See [`Episode::job_index`].
    #[serde(skip)]
    pub job_index: JobIndex,
    /// Rank that ran the job.
    pub rank: usize,
    /// Environments of a shared job that this rank had; `None` for a job that is not shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Why the job failed; `None` if it ran to its end.
    pub error: Option<String>,
    /// How often the job has failed in this rank before.
    pub attempt: u32,
    /// Whether the failed job will be tried again.
    pub retried: bool,
    /// Path of the rank's log, relative to the run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Seconds since the job began in the rank.
    pub wall_s: f64,
    /// What the attempt has cost.
    #[serde(flatten)]
    pub costs: Costs,
    /// Seconds of inference.
    pub infer_busy_s: f64,
    /// Seconds in which at least one environment was stepping.
    pub sim_busy_s: f64,
    /// Latency of a policy call in milliseconds.
    pub infer_ms: Quantiles,
    /// Latency of a step of all due environments in milliseconds.
    pub sim_ms: Quantiles,
    /// Share of the time in which the GPU was busy for any process; `None` if the driver does not
    /// report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_busy: Option<f64>,
    /// When the job ended, RFC 3339 in UTC.
    pub ended: String,
}

/// Two quantiles of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// The median; half of the values are lower.
    pub p50: Option<f64>,
    /// 95th percentile: one in twenty is slower.
    pub p95: Option<f64>,
}

/// A rank has nothing left to do, or reports why it cannot continue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankEnd {
    /// The rank that ended.
    pub rank: usize,
    /// Seconds since [`RankStart`].
    pub wall_s: f64,
    /// Seconds of these that were spent in jobs.
    pub busy_s: f64,
    /// Whether a signal ended the rank early.
    pub stopped: bool,
    /// Why the rank ended early by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// Whether the failure is one of the hardware, so that no episode is to blame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hardware: bool,
    /// When the rank ended, RFC 3339 in UTC.
    pub ended: String,
}

impl Line {
    /// Returns name and position of the job that the line is about, if any.
    pub fn job(&self) -> Option<(&str, JobIndex)> {
        match self {
            Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) | Line::Decision(_) => None,
            Line::JobStart(start) => Some((&start.job, start.job_index)),
            Line::EpisodeStart(start) => Some((&start.job, start.job_index)),
            Line::Episode(episode) => Some((&episode.job, episode.job_index)),
            Line::EnvLost(lost) => Some((&lost.job, lost.job_index)),
            Line::JobEnd(end) => Some((&end.job, end.job_index)),
        }
    }

    /// Sets the position of the job that the line is about.
    pub fn set_job_index(&mut self, index: JobIndex) {
        match self {
            Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) | Line::Decision(_) => {}
            Line::JobStart(start) => start.job_index = index,
            Line::EpisodeStart(start) => start.job_index = index,
            Line::Episode(episode) => episode.job_index = index,
            Line::EnvLost(lost) => lost.job_index = index,
            Line::JobEnd(end) => end.job_index = index,
        }
    }

    /// Returns the number of the episode that the line is about, if any.
    pub fn episode(&self) -> Option<u64> {
        match self {
            Line::EpisodeStart(start) => Some(start.episode),
            Line::Episode(episode) => Some(episode.episode),
            Line::EnvLost(lost) => Some(lost.episode),
            _ => None,
        }
    }
}

impl From<Episode> for Line {
    fn from(episode: Episode) -> Self {
        Self::Episode(Box::new(episode))
    }
}

/// What a sequential test is to find out about a run, compared with a reference run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Question {
    /// Has the run lost the margin or more?
    Regression,
    /// Do the rates differ by less than the margin?
    Reproduction,
}

/// What a sequential test has found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// A loss of the margin is excluded.
    Passed,
    /// The run has solved significantly fewer episodes, and the loss may be larger than the margin.
    Regression,
    /// The rates differ by less than the margin.
    Same,
    /// The rates differ significantly, and the difference may be larger than the margin.
    Different,
    /// The episodes are too few to tell.
    Undecided,
}

/// What a sequential test has decided about a run. Differences are those of this run (B) minus the
/// reference (A).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Decision {
    /// The reference, as the command line named it.
    pub against: String,
    /// The published rate that the run was compared with, if that is the reference. There are no
    /// pairs then: `only_b` counts the episodes that this run solved, `neither` the others, and the
    /// interval covers that the claim is a sample, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Claim>,
    /// The question that the test answers.
    pub question: Question,
    /// The margin, as a difference of rates: 0.05 is five percentage points.
    pub margin: f64,
    /// Probability of a wrong verdict, at most, over all looks together.
    pub level: f64,
    /// The answer.
    pub verdict: Verdict,
    /// Number of rounds that the test looked at: the first episodes of every job.
    pub rounds: u64,
    /// Number of rounds that the reference and the shortest job allow.
    pub comparable_rounds: u64,
    /// Pairs that both solved.
    pub both: u64,
    /// Pairs that only the reference solved.
    pub only_a: u64,
    /// Pairs that only this run solved.
    pub only_b: u64,
    /// Pairs that neither solved.
    pub neither: u64,
    /// Number of pairs that do not count, because an episode of either run ended with an error.
    pub errors: u64,
    /// Rate of this run minus that of the reference, over the pairs that count.
    pub difference: Option<f64>,
    /// Confidence sequence of the difference at `level`.
    pub interval: Option<[f64; 2]>,
    /// When it was made, RFC 3339 in UTC.
    pub at: String,
    /// The launch that made it; the journal puts it on every line, see
    /// [`crate::journal::Stamp`].
    #[serde(default, skip_serializing)]
    pub launch: Option<String>,
}

/// A success rate that somebody has published, as counts: `462/500`, over all tasks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Number of solved episodes.
    pub solved: u64,
    /// Number of episodes, at least 1.
    pub episodes: u64,
}

impl Claim {
    /// Returns the share of solved episodes.
    pub fn rate(self) -> f64 {
        self.solved as f64 / self.episodes as f64
    }
}

impl FromStr for Claim {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let counts = text
            .split_once('/')
            .and_then(|(solved, episodes)| Some((solved.parse().ok()?, episodes.parse().ok()?)));
        match counts {
            Some((solved, episodes @ 1..=MAX_EPISODES)) if solved <= episodes => {
                Ok(Self { solved, episodes })
            }
            _ => Err(Refusal::new(format_args!(
                "`{text}` is not a claim: expected SOLVED/EPISODES, for example 462/500"
            ))),
        }
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { solved, episodes } = self;
        write!(f, "{solved} of {episodes} ({:.1} %)", self.rate() * 100.0)
    }
}
