//! Recording: one dataset a rank and one mp4 an environment, written by threads of their own.
//!
//! ```text
//!              ┌► video threads  ─► *_env<i>.mp4, *_episode<e>_success.mp4, *_grid.mp4
//!  Recorder ───┤
//!              └► dataset thread ─► dataset.hdf5, or a LeRobot folder
//!  poll: Recorded ◄─ parts ─ both
//! ```
//!
//! The loop never waits for a file, unless one of the bounded lines to the threads is full; how often and how long it
//! did is counted ([`Recorder::pressure`]). Neither kind of thread waits for the other. Pictures travel as shared memory.
//! An episode of a dataset lives in memory until its end and is then written in one go; once its [`Recorded`] is out, a
//! kill cannot take it away. How a dataset stays whole is told in `dataset`, how a video does in `video`.

use std::path::PathBuf;
use std::sync::Arc;

use crate::env::{EnvIndex, EnvSpec};

mod closed;
mod dataset;
mod disk;
mod episode;
mod error;
mod lerobot;
mod line;
mod parts;
mod recorder;
mod snapshot;
#[cfg(test)]
mod tests;
mod video;
mod writer;

pub use dataset::{DatasetPlan, Export, Format};
pub use disk::{Amount, Estimate};
pub use error::RecordError;
pub use line::Waits;
pub use recorder::{Pressure, Recorder};
pub use video::{CameraSize, GridPlan, VideoPlan};

/// What to record.
#[derive(Clone, Debug)]
pub struct RecordPlan {
    /// The dataset file, if one is wanted.
    pub dataset: Option<DatasetPlan>,
    /// Videos, if wanted.
    pub video: Option<VideoPlan>,
    /// Environments are `0..num_envs`.
    pub num_envs: usize,
    /// What they are.
    pub env: EnvSpec,
}

/// Who an episode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpisodeMeta {
    /// Its number in the job.
    pub episode: u64,
    /// What it was reset with.
    pub seed: u64,
    /// The task in words.
    pub language: Arc<str>,
}

/// How an episode ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpisodeEnd {
    /// The success predicate held.
    pub success: bool,
    /// The task ended.
    pub terminated: bool,
    /// The time limit ended it.
    pub truncated: bool,
}

/// Where a recorded episode is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Where it ran.
    pub env: EnvIndex,
    /// Its number in the job.
    pub episode: u64,
    /// The dataset that it is in, if the plan wants it there.
    pub dataset: Option<PathBuf>,
    /// Its name there, of HDF5 the group below `data`: `demo_12`.
    pub demo: Option<String>,
    /// Its part of the video of its environment.
    pub video: Option<VideoSpan>,
    /// The video that has it alone, if the plan wants one.
    pub episode_video: Option<PathBuf>,
    /// What it goes without from now on, and why; names the file.
    pub warning: Option<String>,
    /// Why something of it is not there that has to be; names the file.
    pub error: Option<String>,
}

/// A part of a video.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VideoSpan {
    /// The file.
    pub path: PathBuf,
    /// Frames before it.
    pub first_frame: u64,
    /// Frames of it, at least 1.
    pub frames: u64,
    /// Frames a second.
    pub fps: u32,
}
