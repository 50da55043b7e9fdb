//! The error type of run folders.

use std::io;
use std::path::{Path, PathBuf};

use crate::launch::LockError;

use crate::fields::FieldError;

/// Why a run folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunFolderError {
    /// `--resume` names a folder without a run.
    #[error("`{}` has no plan.json, so there is no run to resume; start one with --jobs and \
        --output", .0.display())]
    NoRun(PathBuf),
    /// The folder holds a run with other jobs.
    #[error("run folder `{}` contains a different run:\n  {}\n{consequence}", folder.display(), lines.join("\n  "))]
    Other {
        /// The run folder.
        folder: PathBuf,
        /// The differences, one line each.
        lines: Vec<String>,
        /// What `--accept-changed-jobs` would do, and what else can be done.
        consequence: String,
    },
    /// The folder of a quick run holds another one.
    #[error(
        "`{}` holds a run that is not a quick one, so --quick does not replace it; choose another \
         --output", .0.display()
    )]
    NotQuick(PathBuf),
    /// The plan has the schema of another version.
    #[error("run folder `{}` has a plan of schema `{found}`, expected `{wanted}`; choose another \
        --output", folder.display())]
    Schema {
        /// The run folder.
        folder: PathBuf,
        /// The schema in the folder.
        found: String,
        /// The schema that this version reads.
        wanted: &'static str,
    },
    /// Another process has a journal of the folder open.
    #[error("another evaluation is running in `{}`", .0.display())]
    InUse(PathBuf),
    /// Another launch holds the folder.
    #[error(transparent)]
    Held(#[from] LockError),
    /// The plan was changed after it was read and before the first line of the journal was written.
    #[error("the plan of `{}` was changed by another evaluation while this one started", .0.display())]
    Overtaken(PathBuf),
    /// Its plan cannot be read.
    #[error("cannot read `{}`: {err}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the file system says.
        #[source]
        err: io::Error,
    },
    /// Its plan is damaged.
    #[error("`{}` is not a plan of rrun: {err}", path.display())]
    Damaged {
        /// Path of the plan.
        path: PathBuf,
        /// The parse error.
        #[source]
        err: serde_json::Error,
    },
    /// The plan has values that no jobs file may have.
    #[error("`{}` cannot be used: {refusal}", path.display())]
    Refused {
        /// Path of the plan.
        path: PathBuf,
        /// The field, and why it is refused.
        refusal: FieldError,
    },
    /// The folder cannot be created or read.
    #[error("cannot use run folder `{}`: {err}", folder.display())]
    Io {
        /// The run folder.
        folder: PathBuf,
        /// The error of the file system.
        #[source]
        err: io::Error,
    },
}

/// Returns a function that adds the folder to an error of the file system.
pub(super) fn io(folder: &Path) -> impl Fn(io::Error) -> RunFolderError + '_ {
    |err| RunFolderError::Io {
        folder: folder.to_owned(),
        err,
    }
}
