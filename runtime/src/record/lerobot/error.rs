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
    /// `stats.json` is not a map.
    #[error("`stats.json` is not an object")]
    StatsForm,
    /// `stats.json` lacks a part.
    #[error("`stats.json` does not have all statistics")]
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
