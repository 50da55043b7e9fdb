//! Recording: one dataset for each rank and one mp4 for each environment, written by background
//! threads.
//!
//! ```text
//!              ┌► video threads  ─► *_env<i>.mp4, *_episode<e>_success.mp4, *_grid.mp4
//!  Recorder ───┤
//!      ▲       └► dataset thread ─► dataset.hdf5, or a LeRobot folder
//!      └─ answers ─ both ─► poll: Finished
//! ```
//!
//! The evaluation loop never waits for a file, unless one of the bounded channels to the threads is
//! full; how often and how long that happened is counted ([`Recorder::waits`]). The threads do not
//! wait for each other. Images are shared with the threads, not copied. An episode of a dataset is
//! kept in memory until its end and then written at once; after it was returned as [`Finished`], a
//! kill cannot destroy it. The modules `dataset` and `video` explain how their files stay valid.

use std::sync::Arc;

use jobs::episode::Episode;
use jobs::layout::RunFolder;

use crate::env::EnvSpec;

mod dataset;
mod disk;
mod episode;
mod error;
mod lane;
mod lerobot;
mod recorder;
#[cfg(test)]
mod tests;
mod thumbnail;
mod video;

pub use dataset::{DatasetPlan, EarlierDemos, demos, leave_out};
pub use disk::{Amount, Estimate};
pub use error::RecordError;
pub use lane::{ChannelWaits, Closed};
pub use recorder::Recorder;
pub use thumbnail::thumbnail;
pub use video::{CameraSize, GridPlan, VideoPlan};

/// Configuration of a recording.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// The folder to which the paths of files in a journal are relative.
    pub folder: RunFolder,
    /// The dataset, if one is recorded.
    pub dataset: Option<DatasetPlan>,
    /// The videos, if they are recorded.
    pub video: Option<VideoPlan>,
    /// Number of environments; their indices are `0..num_envs`.
    pub num_envs: usize,
    /// Properties of the environments.
    pub env: EnvSpec,
}

/// Identifies an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeMeta {
    /// Number of the episode in the job.
    pub episode: u64,
    /// Seed of its reset.
    pub seed: u64,
    /// The task instruction.
    pub language: Arc<str>,
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeEnd {
    /// The success predicate held.
    pub success: bool,
    /// The environment terminated the episode.
    pub terminated: bool,
    /// The time limit truncated the episode.
    pub truncated: bool,
}

/// An episode whose files are written.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// Its journal line, which names the files.
    pub episode: Episode,
    /// What is not recorded from now on, and why; names the file.
    pub warning: Option<String>,
    /// Why required parts are missing; each names the file.
    pub errors: Vec<String>,
}
