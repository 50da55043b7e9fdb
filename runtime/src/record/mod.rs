//! Recording: one dataset for each rank and one mp4 for each environment, written by background
//! threads.
//!
//! ```text
//!              ┌─ images ──► video threads  ─► *_env<i>.mp4, *_episode<e>_success.mp4, *_grid.mp4
//!  Recorder ───┤
//!      ▲       └─ episodes ─► dataset thread ─► dataset.hdf5, or a LeRobot folder
//!      └─ answers ─ both ─► poll: Finished
//! ```
//!
//! The evaluation loop never waits for a file, unless one of the bounded channels to the threads is
//! full; how often and how long that happened is counted ([`Recorder::waits`]). The threads do not
//! wait for each other. Images are shared with the threads, not copied. An episode of a dataset is
//! kept in memory until its end and then written at once; after it was returned as [`Finished`], a
//! kill cannot destroy it. The modules `dataset` and `video` explain how their files stay valid.

use std::path::Path;

use jobs::episode::Episode;
use jobs::layout::RunFolder;

use crate::env::{EnvSpec, Frame, ImageSize};

mod dataset;
mod disk;
mod episode;
mod lane;
mod lerobot;
mod recorder;
#[cfg(test)]
mod tests;
mod video;

pub use dataset::{DatasetPlan, EarlierDemos, demos, leave_out};
pub use disk::{Amount, Estimate};
pub use lane::{ChannelWaits, Closed};
pub use recorder::Recorder;
pub use video::{AS_RENDERED, LOW_RES, VideoPlan, thumbnail};

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

/// Why something is not recorded: a sentence that names the file, the camera or the column.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecordError(pub String);

impl RecordError {
    /// Creates an error about a file.
    fn file(path: &Path, reason: impl ToString) -> Self {
        Self(format!("`{}`: {}", path.display(), reason.to_string()))
    }

    /// Creates an error of HDF5 about a file.
    fn hdf5(path: &Path, err: &hdf5::Error) -> Self {
        Self::file(path, hdf5_reason(err))
    }
}

/// Checks that an image has the bytes of its size.
fn check_bytes(camera: &str, frame: &Frame) -> Result<(), String> {
    let (bytes, size) = (frame.rgb.len(), frame.size());
    match bytes == size.rgb_bytes() {
        true => Ok(()),
        false => Err(format!("camera `{camera}` gave {bytes} bytes for {size}")),
    }
}

/// Checks that the size of an image is that of the images before.
fn check_size(camera: &str, before: ImageSize, now: ImageSize) -> Result<(), String> {
    match before == now {
        true => Ok(()),
        false => Err(format!("camera `{camera}` changed from {before} to {now}")),
    }
}

/// Returns the message of an HDF5 error, reduced to the system's error message if there is one: the
/// error stack ends in frames like `file write failed: …, errno = 28, error message = 'No space
/// left on device', …`.
fn hdf5_reason(err: &hdf5::Error) -> String {
    const MARK: &str = "error message = '";
    let Some(stack) = err.stack() else {
        return err.to_string();
    };
    let words = stack.iter().find_map(|frame| {
        let (_, rest) = frame.desc().split_once(MARK)?;
        rest.split('\'').next()
    });
    match words {
        Some(words) => format!("{words} ({})", stack.description()),
        None => err.to_string(),
    }
}
