//! The errors of a recording.

use std::path::{Path, PathBuf};

use crate::env::{EnvIndex, Frame, ImageSize};

/// An error of the recorder.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The index is not one of an environment.
    #[error("environment {}: the recorder was made for {num_envs}", env.0)]
    Environment {
        /// The given index.
        env: EnvIndex,
        /// Number of environments.
        num_envs: usize,
    },
    /// A step, end or discard came before `begin`.
    #[error("environment {}: no episode has started", env.0)]
    NotBegun {
        /// Index of the environment.
        env: EnvIndex,
    },
    /// `begin` came before the end of the previous episode.
    #[error("environment {}: episode {episode} is still open", env.0)]
    StillOpen {
        /// Index of the environment.
        env: EnvIndex,
        /// Number of the open episode.
        episode: u64,
    },
    /// The action does not have one value per dimension.
    #[error("environment {}: the action has {found} values, expected {wanted}", env.0)]
    Action {
        /// Index of the environment.
        env: EnvIndex,
        /// Length of the action.
        found: usize,
        /// Number of dimensions of the action.
        wanted: usize,
    },
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// A file cannot be created, read or written.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error message of the system or the library.
        reason: String,
    },
    /// The rows of an episode do not fit together.
    #[error(transparent)]
    Rows(#[from] RowError),
    /// A thread of the recorder has ended; nothing more is recorded.
    #[error("a thread of the recorder ended early: {0}")]
    Stopped(String),
}

/// The reason why an episode cannot become a part of a dataset.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// A name has another number of values than before.
    #[error("`{name}` changed from {before} to {now} values")]
    Width {
        /// Name of the column.
        name: String,
        /// Number of values in the rows before.
        before: usize,
        /// Number of values in this row.
        now: usize,
    },
    /// A name has no value in some rows.
    #[error("`{name}` has {found} rows, the episode has {rows}")]
    Rows {
        /// Name of the column.
        name: String,
        /// Number of rows with a value.
        found: usize,
        /// Number of rows of the episode.
        rows: usize,
    },
    /// A camera has no image in some rows.
    #[error("camera `{camera}` has {found} pictures, the episode has {rows} rows")]
    Images {
        /// Name of the camera.
        camera: String,
        /// Number of its images.
        found: usize,
        /// Number of rows of the episode.
        rows: usize,
    },
    /// An image cannot be kept.
    #[error(transparent)]
    Image(#[from] ImageError),
}

/// The reason why an image of a camera cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageError {
    /// The step has no image of the camera.
    #[error("camera `{camera}` gave no picture")]
    Missing {
        /// Name of the camera.
        camera: String,
    },
    /// The image does not have the bytes of its size.
    #[error("camera `{camera}` gave {bytes} bytes for {size}")]
    Bytes {
        /// Name of the camera.
        camera: String,
        /// Number of bytes.
        bytes: usize,
        /// Its size.
        size: ImageSize,
    },
    /// The size differs from that of the images before.
    #[error("camera `{camera}` changed from {before} to {now}")]
    Resized {
        /// Name of the camera.
        camera: String,
        /// The size before.
        before: ImageSize,
        /// The size now.
        now: ImageSize,
    },
    /// The image has no pixel, or would be shown without one.
    #[error("camera `{camera}` has pictures of {size} shown as {shown}")]
    Empty {
        /// Name of the camera.
        camera: String,
        /// The size of the image.
        size: ImageSize,
        /// The size at which it is shown.
        shown: ImageSize,
    },
}

impl ImageError {
    /// Checks that an image has the bytes of its size.
    pub(in crate::record) fn check_bytes(camera: &str, frame: &Frame) -> Result<(), Self> {
        if frame.rgb.len() == frame.size().rgb_bytes() {
            return Ok(());
        }
        Err(Self::Bytes {
            camera: camera.to_owned(),
            bytes: frame.rgb.len(),
            size: frame.size(),
        })
    }

    /// Checks that the size of an image is that of the images before.
    pub(in crate::record) fn check_size(
        camera: &str,
        before: ImageSize,
        now: ImageSize,
    ) -> Result<(), Self> {
        if before == now {
            return Ok(());
        }
        Err(Self::Resized {
            camera: camera.to_owned(),
            before,
            now,
        })
    }
}

impl RecordError {
    /// Creates an error about a file.
    pub(in crate::record) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File {
            path: path.to_path_buf(),
            reason: reason.to_string(),
        }
    }
}

/// Returns the message of an HDF5 error, reduced to the system's error message if there is one: the
/// error stack ends in frames like `file write failed: …, errno = 28, error message = 'No space
/// left on device', …`.
pub(in crate::record) fn hdf5_reason(err: &hdf5::Error) -> String {
    const MARK: &str = "error message = '";
    let Some(stack) = err.stack() else {
        return err.to_string();
    };
    let quoted = stack.iter().find_map(|frame| {
        let (_, rest) = frame.desc().split_once(MARK)?;
        rest.split_once('\'').map(|(words, _)| words.to_owned())
    });
    match quoted {
        Some(words) => format!("{words} ({})", stack.description()),
        None => err.to_string(),
    }
}
