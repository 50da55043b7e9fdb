//! Recording: one dataset for each rank and one mp4 for each environment, written by background
//! threads.
//!
//! ```text
//!              ┌► video threads  ─► *_env<i>.mp4, *_episode<e>_success.mp4, *_grid.mp4
//!  Recorder ───┤
//!              └► dataset thread ─► dataset.hdf5, or a LeRobot folder
//!  poll: Recorded ◄─ parts ─ both
//! ```
//!
//! The evaluation loop never waits for a file, unless one of the bounded channels to the threads is
//! full; how often and how long that happened is counted ([`Recorder::pressure`]). The two kinds of
//! threads do not wait for each other. Images are shared with the threads, not copied. An episode
//! of a dataset is kept in memory until its end and then written at once; after its [`Recorded`]
//! was returned, a kill cannot destroy it. The modules `dataset` and `video` explain how their
//! files stay valid.

use std::path::PathBuf;
use std::sync::Arc;

use crate::env::{EnvIndex, EnvSpec};

mod dataset;
mod disk;
mod episode;
mod error;
mod lane;
mod lerobot;
mod parts;
mod recorder;
#[cfg(test)]
mod tests;
mod thumbnail;
mod video;
mod writer;

pub use dataset::{DatasetPlan, EarlierDemos, Export, Format, demos, leave_out};
pub use disk::{Amount, Estimate};
pub use error::RecordError;
pub use lane::ChannelWaits;
pub use recorder::{Pressure, Recorder};
pub use thumbnail::thumbnail;
pub use video::{CameraSize, GridPlan, VideoPlan};

/// Configuration of a recording.
#[derive(Clone, Debug)]
pub struct RecordPlan {
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

/// The files of a recorded episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// The environment that ran it.
    pub env: EnvIndex,
    /// Number of the episode in the job.
    pub episode: u64,
    /// Path of its dataset, if the plan records it.
    pub dataset: Option<PathBuf>,
    /// Its name in the dataset; for HDF5 the group below `data`: `demo_12`.
    pub demo: Option<String>,
    /// Its part of the environment's video.
    pub video: Option<VideoSpan>,
    /// Path of its own video, if the plan records one.
    pub episode_video: Option<PathBuf>,
    /// What is not recorded from now on, and why; names the file.
    pub warning: Option<String>,
    /// Why a required part is missing; names the file.
    pub error: Option<String>,
}

/// A range of frames in a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoSpan {
    /// Path of the video.
    pub path: PathBuf,
    /// Number of frames before the range.
    pub first_frame: u64,
    /// Number of frames in the range, at least 1.
    pub frames: u64,
    /// Frame rate in frames per second.
    pub fps: u32,
}
