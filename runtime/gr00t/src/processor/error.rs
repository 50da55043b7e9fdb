//! The reasons for refusing a processor's files or an observation.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a processor's files or an observation are refused.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// A file cannot be read.
    #[error("`{}`: {err}", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        err: io::Error,
    },
    /// A file is not JSON.
    #[error("`{}`: not JSON: {err}", path.display())]
    Json {
        /// Path of the file.
        path: PathBuf,
        /// Position and reason.
        #[source]
        err: serde_json::Error,
    },
    /// A field has a wrong type or value.
    #[error("`{}`: `{field}` is {found}, {wanted}", path.display())]
    Field {
        /// Path of the file.
        path: PathBuf,
        /// The field with its enclosing objects, such as `processor_kwargs.crop_fraction`.
        field: String,
        /// The field's value, or `missing`.
        found: String,
        /// The accepted values, as a clause.
        wanted: String,
    },
    /// A directory lacks a file.
    #[error("`{}` has no {wanted}", dir.display())]
    NoFile {
        /// Path of the directory.
        dir: PathBuf,
        /// The missing file, as a clause.
        wanted: String,
    },
    /// The tokenizer or the chat template cannot be used.
    #[error("`{}`: {reason}", path.display())]
    Text {
        /// Path of the file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The name is not an embodiment tag of the checkpoint.
    #[error("unknown embodiment tag `{tag}`: this checkpoint has {known}")]
    Tag {
        /// The requested tag.
        tag: String,
        /// The tags of the checkpoint, separated by commas.
        known: String,
    },
    /// An observation, an instruction or the network's output does not fit the checkpoint.
    #[error("{what} is {found}, {wanted}")]
    Input {
        /// The affected input, such as "state `eef_9d`".
        what: String,
        /// The given value, such as "3 values wide".
        found: String,
        /// The accepted values, as a clause, such as "9 are needed".
        wanted: String,
    },
}

impl ProcessorError {
    pub(super) fn input(
        what: impl Into<String>,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) -> Self {
        Self::Input {
            what: what.into(),
            found: found.into(),
            wanted: wanted.into(),
        }
    }

    pub(super) fn text(path: &Path, reason: impl ToString) -> Self {
        Self::Text {
            path: path.to_owned(),
            reason: reason.to_string(),
        }
    }
}
