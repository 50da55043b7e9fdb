//! The reasons why a LeRobot folder cannot be read or written.

use std::path::{Path, PathBuf};

use crate::record::video::film::FilmError;

/// An error about the files of a LeRobot folder.
#[derive(Debug, thiserror::Error)]
pub(super) enum LeRobotError {
    /// A file cannot be created, read, parsed or written.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The message of the system or the library.
        reason: String,
    },
    /// `info.json` lacks a number.
    #[error("`info.json` has no number `{name}`")]
    NoNumber {
        /// Name of the field.
        name: &'static str,
    },
    /// `info.json` lacks its features.
    #[error("`info.json` has no `features`")]
    NoFeatures,
    /// The dataset was recorded at another rate.
    #[error("it has {found} pictures per second, the environment {wanted}")]
    Rate {
        /// Rate of the dataset.
        found: u64,
        /// Rate of the environment.
        wanted: u64,
    },
    /// The list of episodes is not that of the dataset.
    #[error("`rrun_episodes.jsonl` has episode {found} where {wanted} is expected")]
    List {
        /// Index in the list, or the number of lines.
        found: u64,
        /// Index, or the number of episodes of the dataset.
        wanted: u64,
    },
    /// A line of the list of episodes lacks a part of its statistics.
    #[error("`rrun_episodes.jsonl` does not have all statistics")]
    Stats,
    /// The list of tasks cannot be read.
    #[error(transparent)]
    Tasks(#[from] parquet::errors::ParquetError),
    /// A feature has another shape in the episode than in the dataset.
    #[error("`{name}` is {episode} in the episode and {dataset} in the dataset")]
    Feature {
        /// Name of the feature.
        name: String,
        /// Its shape in the episode, or `missing`.
        episode: String,
        /// Its shape in the dataset, or `missing`.
        dataset: String,
    },
    /// A value cannot be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A video cannot be written.
    #[error(transparent)]
    Video(#[from] FilmError),
}

impl LeRobotError {
    /// Creates an error about a file.
    pub(super) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
