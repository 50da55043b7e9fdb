//! Log files of the ranks, and their lines on the console.
//!
//! ```text
//! <log dir>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log, stderr.log, error.json}
//!                              /attempt_<n>/{filtered_stdout.log, filtered_stderr.log}
//!
//! rank ──writes──► stdout.log ──inotify──► tail ──whole lines, prefixed──► console, filtered_stdout.log
//! ```
//! A captured rank writes into its file itself, as under torchrun, and the launcher follows the file. So a rank never
//! waits for a slow console, nothing is lost when the launcher is killed, a descendant that lives on keeps a working
//! stdout, and the end of a stream is the end of a file and not the moment when the last holder of a pipe lets go.
//! What torchrun pays for it, lines that come up to 0.1 s late, is saved by asking the kernel for news of the files.

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

/// Why log files cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `--log-dir` names a file.
    #[error("log_dir: {} is a file", .path.display())]
    NotAFolder {
        /// What was named.
        path: PathBuf,
    },
    /// A folder or file could not be made.
    #[error("cannot make `{}`", .path.display())]
    Make {
        /// What was to be made.
        path: PathBuf,
        /// Why not.
        #[source]
        err: io::Error,
    },
    /// The thread that follows the files could not start.
    #[error("cannot follow the log files")]
    Follow(#[source] io::Error),
}
