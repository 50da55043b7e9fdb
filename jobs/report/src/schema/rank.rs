//! The entries of a report about ranks: their lives, their jobs, and the resources they used.

use jobs::costs::Costs;
use serde::{Deserialize, Serialize};

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
