//! Ranks: how often each lived, what it did when, and what it used.

use serde::{Deserialize, Serialize};

/// One rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankReport {
    /// Which.
    pub rank: usize,
    /// Its journal, relative to the run folder.
    #[serde(default)]
    pub journal: String,
    /// Number of its node.
    #[serde(default)]
    pub node: usize,
    /// Number within the node.
    #[serde(default)]
    pub local_rank: Option<usize>,
    /// Machine.
    pub host: String,
    /// Device.
    pub device: String,
    /// Why that one.
    pub device_reason: String,
    /// How often it was begun.
    pub starts: u64,
    /// Of these, how often its launcher started it again.
    #[serde(default)]
    pub restarts: u64,
    /// How often it ended without a last line: killed, crashed, or cut off with its machine.
    #[serde(default)]
    pub deaths: u64,
    /// Seconds in jobs.
    pub busy_s: f64,
    /// Seconds elsewhere: start, waiting for the others.
    pub idle_s: f64,
    /// Jobs it ran episodes of or began.
    #[serde(default)]
    pub jobs: u64,
    /// Episodes it ran that count.
    pub episodes: u64,
    /// Highest resident memory.
    #[serde(default)]
    pub peak_rss_bytes: u64,
    /// Most memory of the GPU that libtorch held; `null` without one.
    #[serde(default)]
    pub peak_vram_bytes: Option<u64>,
    /// Most memory that the environments' processes took together; `null` where they have no processes of their own.
    #[serde(default)]
    pub peak_env_bytes: Option<u64>,
    /// Most memory of GPUs that these processes held together.
    #[serde(default)]
    pub peak_env_vram_bytes: Option<u64>,
    /// Inferences that failed for want of memory and were tried again.
    #[serde(default)]
    pub out_of_memory: u64,
    /// Share of the time in jobs in which its GPU was at work, for whomever; `null` where the driver does not tell.
    #[serde(default)]
    pub gpu_busy: Option<f64>,
    /// From each of its starts to the end that it came to, in time.
    #[serde(default)]
    pub lives: Vec<Life>,
    /// The jobs that it had, in time.
    #[serde(default)]
    pub spans: Vec<Span>,
}

/// From a start of a rank to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// UTC.
    pub started: String,
    /// UTC: its last line.
    pub ended: String,
    /// How it ended.
    pub end: HowEnded,
    /// Why it died, where it could say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How often its launcher had started it before.
    pub restart: u32,
    /// Which meeting of the ranks it took part in.
    pub round: u32,
    /// Process.
    pub pid: u32,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HowEnded {
    /// It had nothing left to do.
    Done,
    /// A signal asked it to end.
    Stopped,
    /// Without a last line, or with one that tells a failure.
    Died,
    /// It has not ended: the report was made while it was at work.
    Running,
}

/// A job in a rank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Span {
    /// Which.
    pub job: String,
    /// How often it had failed in this rank before.
    pub attempt: u32,
    /// UTC.
    pub started: String,
    /// UTC: its last line, or that of the rank's life that it was cut off with.
    pub ended: String,
    /// Whether it came to its end.
    pub whole: bool,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
