//! Why a run folder cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use crate::launch::LockError;

use crate::file::Refusal;

/// A run folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RunFolderError {
    /// `--resume` of a folder without a run.
    #[error("`{}` has no plan.json: there is no run to go on with; --jobs and --output begin one", .0.display())]
    NoRun(PathBuf),
    /// It holds other jobs.
    #[error("run folder `{}` holds another run than this one:\n  {}\n{consequence}", folder.display(), lines.join("\n  "))]
    Other {
        /// The folder.
        folder: PathBuf,
        /// What differs, a line each.
        lines: Vec<String>,
        /// What `--accept-changed-jobs` would do, and what else can be done.
        consequence: String,
    },
    /// It is of another version.
    #[error("run folder `{}` has a plan of schema `{found}`, this rrun writes `{wanted}`; name another --output", folder.display())]
    Schema {
        /// The folder.
        folder: PathBuf,
        /// There.
        found: String,
        /// Here.
        wanted: &'static str,
    },
    /// Somebody works in it.
    #[error("another evaluation is running in `{}`", .0.display())]
    InUse(PathBuf),
    /// Another launch has it.
    #[error(transparent)]
    Held(#[from] LockError),
    /// Its plan was changed between being read and the first line of the journal.
    #[error("the plan of `{}` was changed by another evaluation while this one started", .0.display())]
    Overtaken(PathBuf),
    /// Its plan cannot be read.
    #[error("cannot read `{}`: {err}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        err: io::Error,
    },
    /// Its plan is damaged.
    #[error("`{}` is no plan of rrun: {err}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        err: serde_json::Error,
    },
    /// Its plan says what no jobs file may say.
    #[error("`{}` cannot be used: {refusal}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Which field, and why.
        refusal: Refusal,
    },
    /// It cannot be made or read.
    #[error("cannot use run folder `{}`: {err}", folder.display())]
    Io {
        /// The folder.
        folder: PathBuf,
        /// Why.
        #[source]
        err: io::Error,
    },
}

/// Names the folder of an error of the file system.
pub(super) fn io(folder: &Path) -> impl Fn(io::Error) -> RunFolderError + '_ {
    |err| RunFolderError::Io { folder: folder.to_owned(), err }
}
