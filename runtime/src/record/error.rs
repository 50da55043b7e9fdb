//! What can go wrong while recording.

use std::path::{Path, PathBuf};

use crate::env::EnvIndex;

/// A refusal of the recorder, or the end of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The index names no environment.
    #[error("environment {}: the recorder was made for {num_envs}", env.0)]
    Environment {
        /// What was asked for.
        env: EnvIndex,
        /// How many there are.
        num_envs: usize,
    },
    /// A step, end or discard came before `begin`.
    #[error("environment {}: no episode has begun", env.0)]
    NotBegun {
        /// Which one.
        env: EnvIndex,
    },
    /// `begin` came before the end of the episode before.
    #[error("environment {}: episode {episode} is still open", env.0)]
    StillOpen {
        /// Which one.
        env: EnvIndex,
        /// The open episode.
        episode: u64,
    },
    /// The action does not have one value per dimension.
    #[error("environment {}: the action has {found} values, {wanted} are needed", env.0)]
    Action {
        /// Which one.
        env: EnvIndex,
        /// Its length.
        found: usize,
        /// Dimensions of the action.
        wanted: usize,
    },
    /// The plan cannot be followed.
    #[error("{0}")]
    Plan(String),
    /// A file cannot be made, read or written.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// The system's or the library's words.
        reason: String,
    },
    /// A video cannot be ended; names its file.
    #[error("{0}")]
    Video(String),
    /// A thread of the recorder is gone; nothing more is recorded.
    #[error("a thread of the recorder ended early: {0}")]
    Stopped(String),
}

impl RecordError {
    /// An error of a file.
    pub(in crate::record) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.to_path_buf(), reason: reason.to_string() }
    }
}

/// What the HDF5 library says, reduced to the system's own words where it carries them:
/// its stack ends in frames like `file write failed: …, errno = 28, error message = 'No space left on device', …`.
pub(in crate::record) fn hdf5_reason(err: &hdf5::Error) -> String {
    const MARK: &str = "error message = '";
    let Some(stack) = err.stack() else { return err.to_string() };
    let quoted = stack.iter().find_map(|frame| {
        let (_, rest) = frame.desc().split_once(MARK)?;
        rest.split_once('\'').map(|(words, _)| words.to_owned())
    });
    match quoted {
        Some(words) => format!("{words} ({})", stack.description()),
        None => err.to_string(),
    }
}
