//! The entries of a report about the run (time, machines, versions, configuration) and about its
//! ranks (lives, jobs, resources).

use std::collections::BTreeMap;

use jobs::costs::Costs;
use jobs::journal::RankGpu;
use jobs::plan::{Git, Resumed};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::certificate::CertifiedFiles;

/// When, where and with which versions the run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Id of the run. It stays the same whenever the run is continued.
    pub id: String,
    /// When the first line of any journal was written, RFC 3339 in UTC. Here and below, a launch
    /// that found nothing to do does not count.
    pub started: Option<String>,
    /// When the last line of any journal was written, RFC 3339 in UTC.
    pub ended: Option<String>,
    /// Seconds between the two, including pauses between launches.
    pub wall_s: Option<f64>,
    /// When the report was made, RFC 3339 in UTC.
    pub written: String,
    /// Command line.
    pub argv: Vec<String>,
    /// State of the folder that the run was begun in, if that folder was under git.
    pub git: Option<Git>,
    /// Number of ranks of the last launch that had something to do; of a merge, the largest one of
    /// its runs.
    pub world_size: usize,
    /// Host names.
    pub hosts: Vec<String>,
    /// GPUs that the ranks used.
    pub gpus: Vec<GpuReport>,
    /// Versions that the ranks reported, by program or library; more than one if ranks differ.
    pub versions: BTreeMap<String, Vec<String>>,
    /// Every launch of the run, in order of time.
    pub launches: Vec<LaunchReport>,
    /// Every start after the first one, and what had changed.
    pub resumed_from: Vec<Resumed>,
    /// How the ranks' lines were gathered.
    pub gathered_by: String,
    /// Ranks that did not deliver their lines.
    pub missing_ranks: Vec<usize>,
    /// Why the run ended early.
    pub stopped: Option<String>,
    /// Version of `rrun` that made the report.
    pub rrun: String,
}

/// A GPU that ranks used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct GpuReport {
    /// Host name.
    pub host: String,
    /// Number of the node.
    pub node: usize,
    /// The device, as that rank sees it.
    #[serde(flatten)]
    pub gpu: RankGpu,
}

/// One launch of the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LaunchReport {
    /// When the launch began, RFC 3339 in UTC.
    pub started: String,
    /// Number of ranks.
    pub world_size: usize,
}

/// What was asked for, and the settings in effect.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigReport {
    /// The jobs file, as the command line named it.
    pub jobs_file: String,
    /// SHA-256 of the contents of the jobs file.
    pub sha256: String,
    /// Base seed (`--seed`).
    pub seed: u64,
    /// Number of ranks when the run was begun.
    pub world_size_at_start: usize,
    /// Files and folders of the policies, with their checksums.
    pub policies: Vec<PolicyReport>,
    /// The rules by which ranks got their devices, each once.
    pub device_rules: Vec<String>,
    /// Settings in effect that all jobs had in common; `per_job[].settings` has all settings of a
    /// job.
    pub settings: BTreeMap<String, Value>,
}

impl ConfigReport {
    /// Returns the title of the run: the name of its jobs file, without folders and extension.
    pub(crate) fn title(&self) -> &str {
        let path = self.jobs_file.trim_end_matches('/');
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = name.strip_suffix(".json").or(name.strip_suffix(".yaml"));
        match stem.unwrap_or(name) {
            "" => "evaluation",
            stem => stem,
        }
    }
}

/// A file or folder that a policy was read from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PolicyReport {
    /// What it is, as in a certificate.
    #[serde(flatten)]
    pub files: CertifiedFiles,
    /// The dtypes that jobs with this path ran in.
    pub dtypes: Vec<String>,
}

/// The report of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// The rank (`RANK`).
    pub rank: usize,
    /// Path of its journal, relative to the run folder.
    pub journal: String,
    /// Node of the rank (`GROUP_RANK`).
    pub node: usize,
    /// Rank within the node (`LOCAL_RANK`).
    pub local_rank: Option<usize>,
    /// Host name.
    pub host: String,
    /// Device, as in `cpu` or `cuda:1`.
    pub device: String,
    /// Why this device was chosen.
    pub device_reason: String,
    /// How often the rank was started.
    pub starts: u64,
    /// How many of these starts were restarts by its launcher.
    pub restarts: u64,
    /// How often the rank died: it was killed, crashed, was cut off with its machine, or reported a
    /// failure.
    pub deaths: u64,
    /// Seconds in jobs.
    pub busy_s: f64,
    /// Seconds outside jobs: starting up, waiting for other ranks.
    pub idle_s: f64,
    /// Number of jobs that the rank began or ran episodes of.
    pub jobs: u64,
    /// Number of its episodes that count.
    pub episodes: u64,
    /// What its jobs have cost.
    #[serde(flatten)]
    pub costs: Costs,
    /// Share of the time in jobs in which its GPU was busy for any process; `null` if the driver
    /// does not report it.
    pub gpu_busy: Option<f64>,
    /// Its lives, each from a start to an end, in order of time.
    pub lives: Vec<LifeReport>,
    /// The jobs that it ran, in order of time.
    pub spans: Vec<JobSpan>,
}

/// One life of a rank: from a start to an end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LifeReport {
    /// When the life began, RFC 3339 in UTC.
    pub started: String,
    /// When its last line was written, RFC 3339 in UTC.
    pub ended: String,
    /// How the life ended.
    pub end: HowEnded,
    /// Why the rank died, if it could report that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How often its launcher had restarted the rank before.
    pub restart: u32,
    /// Round of the rendezvous that it took part in.
    pub round: u32,
    /// Process id.
    pub pid: u32,
}

/// How a life of a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HowEnded {
    /// The rank had nothing left to do.
    Done,
    /// A signal stopped it.
    Stopped,
    /// Its journal has no last line, or one that reports a failure.
    Died,
    /// It has not ended: the report was made while the rank was running.
    Running,
}

/// A job in a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpan {
    /// Name of the job.
    pub job: String,
    /// How often the job had failed in this rank before.
    pub attempt: u32,
    /// When the job began, RFC 3339 in UTC.
    pub started: String,
    /// When the job ended, RFC 3339 in UTC: its last line, or the last line of the life that was
    /// cut off.
    pub ended: String,
    /// Whether the job ran to its end.
    pub whole: bool,
    /// Why the job failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
