//! Why a processor's files or an observation are refused.

use std::io;
use std::path::{Path, PathBuf};

/// Why a processor's files or an observation are refused.
#[derive(Debug, thiserror::Error)]
pub enum ProcessorError {
    /// A file cannot be read.
    #[error("`{}`: {err}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        err: io::Error,
    },
    /// A file is not JSON.
    #[error("`{}`: not JSON: {err}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        err: serde_json::Error,
    },
    /// A field has a wrong type or value.
    #[error("`{}`: `{field}` is {found}, {wanted}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// The field, with the objects around it: `processor_kwargs.crop_fraction`.
        field: String,
        /// Its value, or `missing`.
        found: String,
        /// What is accepted, as a clause.
        wanted: String,
    },
    /// A directory lacks a file.
    #[error("`{}` has no {wanted}", dir.display())]
    NoFile {
        /// The directory.
        dir: PathBuf,
        /// The file, as a clause.
        wanted: String,
    },
    /// The tokenizer or the chat template cannot be used.
    #[error("`{}`: {reason}", path.display())]
    Text {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The name is no embodiment tag.
    #[error("unknown embodiment tag `{tag}`: this checkpoint has {known}")]
    Tag {
        /// What was asked for.
        tag: String,
        /// The tags of the checkpoint, comma separated.
        known: String,
    },
    /// An observation, an instruction or the network's output does not fit the checkpoint.
    #[error("{what} is {found}, {wanted}")]
    Input {
        /// What it is: "state `eef_9d`".
        what: String,
        /// What was given: "3 values wide".
        found: String,
        /// What is accepted, as a clause: "9 are needed".
        wanted: String,
    },
}

impl ProcessorError {
    pub(super) fn input(what: impl Into<String>, found: impl Into<String>, wanted: impl Into<String>) -> Self {
        Self::Input { what: what.into(), found: found.into(), wanted: wanted.into() }
    }

    pub(super) fn text(path: &Path, reason: impl ToString) -> Self {
        Self::Text { path: path.to_owned(), reason: reason.to_string() }
    }
}
