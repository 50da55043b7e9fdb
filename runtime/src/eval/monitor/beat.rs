//! The heartbeat of a rank: its state as a fold of what happened, which the other ranks, the
//! launcher and the user read at their own pace. Pure.

use std::collections::BTreeMap;

use jobs::episode::Episode;
use jobs::job::JobIndex;
use serde::{Deserialize, Serialize};

use crate::eval::monitor::meter::GpuBusy;

/// The state of one rank. Only ranks of the same launch read it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beat {
    /// Environment steps so far; grows with every step.
    pub steps: u64,
    /// Name of the job that the rank runs now.
    pub job: String,
    /// Number of finished episodes of that job.
    pub done: u64,
    /// Number of episodes that the job has for this rank; 0 if unknown.
    pub of: u64,
    /// Number of finished episodes of that job that were successful.
    pub solved: u64,
    /// True if the rank has no work now and waits for the others.
    pub arrived: bool,
    /// Number of episodes of all jobs that this rank has finished in this launch.
    pub ended: u64,
    /// Number of those episodes that were successful.
    pub ended_solved: u64,
    /// Number of those episodes that an error ended.
    pub errors: u64,
    /// Number of episodes of all jobs that are assigned to this rank in this launch; 0 if unknown.
    pub own: u64,
    /// Number of jobs, or parts of jobs, that this rank has finished in this launch.
    pub jobs_done: u64,
    /// Number of jobs that are assigned to this rank; 0 if any of them is split between ranks.
    pub jobs: u64,
    /// Seconds in which at least one environment was at work.
    pub sim_s: f64,
    /// Seconds in which the policy ran inference.
    pub infer_s: f64,
    /// Device of the policy: `cpu` or `cuda:1`.
    pub device: String,
    /// Bytes of GPU memory in use, by any process.
    pub gpu_used: u64,
    /// Total bytes of GPU memory.
    pub gpu_total: u64,
    /// Number of answers of environments and policy so far. Only the launcher of this node is told,
    /// see [`crate::eval::monitor::pulse`].
    #[serde(skip)]
    pub moves: u64,
    /// Whether episodes run, so that answers are to be expected.
    #[serde(skip)]
    pub is_stepping: bool,
    /// How long the GPU was busy, for any process; `None` if the driver does not report it.
    pub gpu_busy: Option<GpuBusy>,
    /// The finished episodes of this launch by job; `None` without a tracker, which alone needs
    /// them.
    pub by_job: Option<BTreeMap<JobIndex, JobTally>>,
    /// PID and number of the batches of outcomes that this process has put into the store, see
    /// [`crate::eval::monitor::early_stop`].
    pub batches: (u32, u64),
}

/// The finished episodes of one job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTally {
    /// Number of finished episodes.
    #[serde(rename = "n")]
    pub ended: u64,
    /// Number of those episodes that were successful.
    #[serde(rename = "s")]
    pub solved: u64,
}

impl Beat {
    /// Returns whether the rank itself has made progress since `last`. The GPU fields are ignored,
    /// because other processes change them as well.
    pub fn has_moved_since(&self, last: &Self) -> bool {
        let same_gpu = Self {
            gpu_used: last.gpu_used,
            gpu_total: last.gpu_total,
            gpu_busy: last.gpu_busy,
            ..self.clone()
        };
        same_gpu != *last
    }

    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        let solved = u64::from(episode.success == Some(true));
        self.done += 1;
        self.solved += solved;
        self.ended += 1;
        self.ended_solved += solved;
        self.errors += u64::from(episode.error.is_some());
        if let Some(by_job) = &mut self.by_job {
            by_job.entry(episode.job_index).or_default().count(episode);
        }
    }
}

impl JobTally {
    /// Counts a finished episode.
    pub fn count(&mut self, episode: &Episode) {
        self.ended += 1;
        self.solved += u64::from(episode.success == Some(true));
    }
}
