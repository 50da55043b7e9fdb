//! Log files of the ranks, and their lines on the console.
//!
//! ```text
//! <log dir>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log, stderr.log, error.json}
//!                              /attempt_<n>/{filtered_stdout.log, filtered_stderr.log}
//!
//! rank ──writes──► stdout.log ──inotify──► tail ──whole lines, prefixed──► console,
//!                                                                          filtered_stdout.log
//! ```
//! A captured rank writes into its file itself, as under torchrun, and the launcher follows the
//! file. This has four advantages over a pipe: a rank never waits for a slow console; nothing is
//! lost when the launcher is killed; a descendant that lives on keeps a working stdout; and a
//! stream ends with its file, not when the last holder of a pipe closes it. Torchrun polls the
//! files, so its lines come up to 0.1 s late; inotify avoids that delay.

pub mod attempt;
pub mod console;
pub mod folder;
pub mod last_lines;
pub mod lines;
pub mod long_line;
pub mod prefix;
pub mod tail;

use std::io;
use std::path::PathBuf;

/// The reason why log files cannot be created or followed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `--log-dir` names a file.
    #[error("log_dir: {} is a file", .path.display())]
    NotAFolder {
        /// The path given.
        path: PathBuf,
    },
    /// There is no folder for logs that nobody asked for.
    #[error("TMPDIR is `{}`, which is not a folder; logs go there without --log-dir", .path.display())]
    NoTemporaryFolder {
        /// What TMPDIR names.
        path: PathBuf,
    },
    /// A folder or file could not be created.
    #[error("cannot make `{}`", .path.display())]
    Make {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        #[source]
        err: io::Error,
    },
    /// The thread that follows the files could not be started.
    #[error("cannot follow the log files")]
    Follow(#[source] io::Error),
}
