//! What a journal tells.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::episode::Episode;
use crate::job::JobIndex;
use crate::journal::Subject;
use crate::placement::Share;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Line {
    /// A rank began, or began again.
    Rank(RankStart),
    /// A job began.
    JobStart(JobStart),
    /// An episode began.
    EpisodeStart(EpisodeStart),
    /// An episode ended.
    Episode(Box<Episode>),
    /// The process of an environment was lost.
    EnvLost(Box<EnvLost>),
    /// A job ended.
    JobEnd(JobEnd),
    /// A rank has nothing left to do.
    RankEnd(RankEnd),
    /// What policies are made of.
    PolicyFiles(PolicyFiles),
}

/// A rank began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankStart {
    /// Which.
    pub rank: usize,
    /// Of how many.
    pub world_size: usize,
    /// `TORCHELASTIC_RESTART_COUNT`.
    pub restart: u32,
    /// Which meeting of ranks this is, see [`crate::rank_env::RankEnv::round`].
    #[serde(default)]
    pub round: u32,
    /// `GROUP_RANK`.
    #[serde(default)]
    pub node: usize,
    /// `LOCAL_RANK`.
    #[serde(default)]
    pub local_rank: Option<usize>,
    /// Process.
    #[serde(default)]
    pub pid: u32,
    /// The GPU that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// Name and version of what takes part: `rrun`, `libtorch`, `cuda`, `nccl`, `driver`, `mujoco`.
    #[serde(default)]
    pub versions: BTreeMap<String, String>,
    /// Machine.
    pub host: String,
    /// Its processor, as its maker calls it. The last bits of a network's results depend on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Threads of libtorch's operators on the CPU. The last bits of a network's results depend on them, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// `cpu`, `cuda:1`.
    pub device: String,
    /// Why that one.
    pub device_reason: String,
    /// UTC.
    pub started: String,
    /// The launch that it belongs to, which the journal says of every line, see [`super::Stamp`].
    #[serde(default, skip_serializing)]
    pub launch: Option<String>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// As CUDA counts the visible ones.
    pub index: usize,
    /// As its maker calls it.
    pub name: String,
    /// Of its memory.
    pub bytes: u64,
    /// `GPU-…`.
    #[serde(default)]
    pub uuid: String,
}

/// An episode began in a rank: who was under way when a rank died. Not synced, as only a machine that loses power forgets
/// it, and that is not the episode's doing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeStart {
    /// Of this job.
    pub job_index: JobIndex,
    /// Number within the job.
    pub episode: u64,
    /// Where.
    pub rank: usize,
    /// Copy of the environment within the rank.
    pub env: usize,
    /// No other episode was under way, because this one is suspected of having killed its rank before.
    #[serde(default)]
    pub alone: bool,
    /// UTC.
    pub started: String,
}

/// What policies are made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyFiles {
    /// Policy type as the jobs name it.
    pub policy_type: String,
    /// File or folder as the jobs name it.
    pub path: String,
    /// SHA-256 of the file; of a folder that of the lines `<sha256>  <name>` of its files by name, as sha256sum prints
    /// them.
    pub sha256: String,
    /// Bytes in all.
    pub bytes: u64,
    /// UTC, when they were read.
    pub at: String,
}

/// A job began in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobStart {
    /// Which.
    pub job_index: JobIndex,
    /// Where.
    pub rank: usize,
    /// Episodes in all, when it is not the length in steps that ends it.
    pub episodes: Option<u64>,
    /// Environments that the rank has of a shared job; of another it has them all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// How often the job has failed in this rank before.
    #[serde(default)]
    pub attempt: u32,
    /// What was in effect: `chunk_length`, `action_horizon`, `dtype`, `device`, `max_batch`, `pipeline_stages`,
    /// `num_envs`, `seed`, `policy_path` and what else the policy says of itself.
    #[serde(default)]
    pub settings: BTreeMap<String, Value>,
    /// UTC.
    pub started: String,
}

/// The process of an environment was lost, and with it the episode that it was in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EnvLost {
    /// Of this job.
    pub job_index: JobIndex,
    /// In this rank.
    pub rank: usize,
    /// Which environment of it.
    pub env: usize,
    /// The episode that begins again, or is an error.
    pub episode: u64,
    /// Steps that it had taken.
    pub step: u64,
    /// How often this happened to the episode, this time included.
    pub attempt: u32,
    /// What happened.
    pub reason: String,
    /// The last lines of the process.
    pub stderr: Vec<String>,
    /// UTC.
    pub at: String,
}

/// A job ended in a rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobEnd {
    /// Which.
    pub job_index: JobIndex,
    /// Where.
    pub rank: usize,
    /// Environments that the rank had of a shared job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Why it failed; `None` when it ran to its end.
    pub error: Option<String>,
    /// How often the job has failed in this rank before.
    #[serde(default)]
    pub attempt: u32,
    /// It will be tried again.
    #[serde(default)]
    pub retried: bool,
    /// Where the rank's log is, relative to the run folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// Seconds since its start.
    pub wall_s: f64,
    /// Steps of all environments.
    pub env_steps: u64,
    /// Frames rendered for them, all cameras.
    pub frames: u64,
    /// Calls of the policy.
    pub policy_calls: u64,
    /// Seconds in which the policy inferred.
    #[serde(default)]
    pub infer_busy_s: f64,
    /// Seconds in which at least one environment was at work.
    #[serde(default)]
    pub sim_busy_s: f64,
    /// Episodes that began again because the process of their environment was lost.
    #[serde(default)]
    pub env_restarts: u64,
    /// How often the loop waited for files.
    #[serde(default)]
    pub record_waits: u64,
    /// Seconds that it waited for them.
    #[serde(default)]
    pub record_wait_s: f64,
    /// Milliseconds of a policy call.
    pub infer_ms: Quantiles,
    /// Milliseconds of a step of all due environments.
    pub sim_ms: Quantiles,
    /// Highest resident memory of the process so far.
    pub peak_rss_bytes: u64,
    /// Most memory of the GPU that libtorch has held at a time; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_vram_bytes: Option<u64>,
    /// Of that, the most that was in tensors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_vram_allocated_bytes: Option<u64>,
    /// Most memory that the environments' processes took together, as it was sampled; `None` where they have no
    /// processes of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_env_bytes: Option<u64>,
    /// Most memory of GPUs that these processes held together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_env_vram_bytes: Option<u64>,
    /// It is an estimate, as the driver does not tell whose memory is whose: what the GPU held beyond libtorch's memory and
    /// what it held before the environments.
    #[serde(default)]
    pub env_vram_is_estimate: bool,
    /// Inferences that failed for want of memory and were tried again.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Rows of an inference that this came down to, in an earlier job of the checkpoint perhaps; 0 where not even one fitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub out_of_memory_batch: Option<u64>,
    /// Share of the time in which the GPU was at work, for whomever; `None` where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_busy: Option<f64>,
    /// UTC.
    pub ended: String,
}

/// Two quantiles of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Median.
    pub p50: Option<f64>,
    /// One in twenty is slower.
    pub p95: Option<f64>,
}

/// A rank has nothing left to do, or says why it cannot go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankEnd {
    /// Which.
    pub rank: usize,
    /// Seconds since [`RankStart`].
    pub wall_s: f64,
    /// Of those, in jobs.
    pub busy_s: f64,
    /// A signal ended it early.
    pub stopped: bool,
    /// Why it ended early by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The failure is one of the hardware: no episode is to blame.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_hardware: bool,
    /// UTC.
    pub ended: String,
}

impl Line {
    /// The job that it is about, if it is about one.
    pub fn job(&self) -> Option<JobIndex> {
        match self {
            Line::Rank(_) | Line::RankEnd(_) | Line::PolicyFiles(_) => None,
            Line::JobStart(start) => Some(start.job_index),
            Line::EpisodeStart(start) => Some(start.job_index),
            Line::Episode(episode) => Some(episode.job_index),
            Line::EnvLost(lost) => Some(lost.job_index),
            Line::JobEnd(end) => Some(end.job_index),
        }
    }

    /// The job and the episode that it is about, if it is about any.
    pub(crate) fn subject(&self) -> Subject {
        let episode = match self {
            Line::EpisodeStart(start) => Some(start.episode),
            Line::Episode(episode) => Some(episode.episode),
            Line::EnvLost(lost) => Some(lost.episode),
            _ => None,
        };
        Subject { job: self.job(), episode }
    }
}
