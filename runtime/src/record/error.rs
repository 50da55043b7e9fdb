//! The errors of a recording.

use std::path::{Path, PathBuf};

use crate::env::EnvIndex;

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
    #[error("environment {}: no episode has begun", env.0)]
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
    #[error("environment {}: the action has {found} values, {wanted} are needed", env.0)]
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
    /// A video cannot be finished; the message names its file.
    #[error("{0}")]
    Video(String),
    /// A thread of the recorder has ended; nothing more is recorded.
    #[error("a thread of the recorder ended early: {0}")]
    Stopped(String),
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
