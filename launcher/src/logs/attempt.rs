//! The log files of one attempt: creates them, hands them to the ranks, and follows them.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::logs::console::ConsoleStream;
use crate::logs::folder::LogFolder;
use crate::logs::prefix::{PrefixNames, prefix};
use crate::logs::tail::{Filtered, Followed, Tail};
use crate::plan::{LaunchPlan, RankPlan};
use crate::process::command::{ChildOutput, OutputStream};
use crate::rank_id::RankId;

/// The log files of ranks that are started together.
#[derive(Debug)]
pub struct AttemptLogs {
    /// The files of each rank.
    pub ranks: Vec<RankLogs>,
    /// Follows the teed files; `None` if no stream is teed.
    pub tail: Option<Tail>,
}

/// The files of one rank.
#[derive(Debug)]
pub struct RankLogs {
    /// The output streams for the process; taken when it starts.
    pub output: Option<ChildOutput>,
    /// Path for `TORCHELASTIC_ERROR_FILE`; `None` with `--log-dir /dev/null`.
    pub error_file: Option<PathBuf>,
    /// The captured files of standard error and standard output, in this order, because errors are
    /// usually written to the first.
    pub captured: Vec<PathBuf>,
}

/// A rank that needs log files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoggedRank {
    /// The rank.
    pub rank: RankId,
    /// Restart count of the rank.
    pub attempt: u32,
}

impl AttemptLogs {
    /// Returns the logs without a log folder: every rank writes to the console, even if its streams
    /// were to be redirected.
    pub fn disabled(nproc: usize) -> AttemptLogs {
        let rank = || RankLogs {
            output: Some(ChildOutput {
                stdout: OutputStream::Inherit,
                stderr: OutputStream::Inherit,
            }),
            error_file: None,
            captured: Vec::new(),
        };
        AttemptLogs {
            ranks: (0..nproc).map(|_| rank()).collect(),
            tail: None,
        }
    }

    /// Creates folders and files for these ranks of `plan`.
    ///
    /// # Errors
    /// Returns the first file that cannot be created or followed.
    pub fn create(
        run: &LogFolder,
        plan: &LaunchPlan,
        writers: &[LoggedRank],
    ) -> anyhow::Result<AttemptLogs> {
        let hostname = jobs::host::name();
        let hostname = hostname.split('.').next().unwrap_or_default();
        let (mut ranks, mut followed) = (Vec::new(), Vec::new());
        for writer in writers {
            let Some(rank) = plan.ranks.get(writer.rank.index) else {
                continue;
            };
            let names = PrefixNames {
                role_name: &plan.role,
                local_rank: rank.local_rank,
                rank: writer.rank.global,
                hostname,
            };
            let mut files = RankFiles {
                attempt: &run.attempt(writer.attempt, rank.local_rank)?,
                rank,
                prefix: prefix(plan.logs.prefix_template.as_deref(), &names),
                captured: Vec::new(),
                followed: &mut followed,
            };
            let logs = &plan.logs;
            let stderr = files.create(ConsoleStream::Stderr, &logs.duplicate_stderr)?;
            let stdout = files.create(ConsoleStream::Stdout, &logs.duplicate_stdout)?;
            ranks.push(RankLogs {
                output: Some(ChildOutput { stdout, stderr }),
                error_file: Some(files.folder().join("error.json")),
                captured: files.captured,
            });
        }
        let tail = (!followed.is_empty()).then(|| Tail::start(followed));
        Ok(AttemptLogs {
            ranks,
            tail: tail.transpose()?,
        })
    }
}

/// The files of a rank that are being created.
struct RankFiles<'a> {
    /// The folder of its attempt.
    attempt: &'a Path,
    rank: &'a RankPlan,
    prefix: String,
    captured: Vec<PathBuf>,
    followed: &'a mut Vec<Followed>,
}

impl RankFiles<'_> {
    fn folder(&self) -> PathBuf {
        self.attempt.join(self.rank.local_rank.to_string())
    }

    /// Creates the files of one stream; lines with one of the substrings are filtered. Returns
    /// where the rank writes to.
    fn create(
        &mut self,
        stream: ConsoleStream,
        substrings: &[String],
    ) -> anyhow::Result<OutputStream> {
        let (redirect, tee) = (self.rank.redirect, self.rank.tee);
        let (name, is_redirected, is_teed) = match stream {
            ConsoleStream::Stdout => ("stdout", redirect.stdout, tee.stdout),
            ConsoleStream::Stderr => ("stderr", redirect.stderr, tee.stderr),
        };
        let filtered = match substrings {
            [] => None,
            _ => Some(Filtered {
                // Ranks of an attempt share the file.
                file: append(
                    OpenOptions::new().create(true),
                    &self.attempt.join(format!("filtered_{name}.log")),
                )?,
                substrings: substrings.to_vec(),
            }),
        };
        if !is_redirected && !is_teed {
            return Ok(match self.rank.shown {
                true => OutputStream::Inherit,
                false => OutputStream::Null,
            });
        }

        let path = self.folder().join(format!("{name}.log"));
        let file = append(OpenOptions::new().create_new(true), &path)?;
        self.captured.push(path.clone());
        if is_teed && (self.rank.shown || filtered.is_some()) {
            self.followed.push(Followed {
                path,
                prefix: self.prefix.clone(),
                stream,
                is_shown: self.rank.shown,
                filtered,
            });
        }
        Ok(OutputStream::File(file))
    }
}

/// Opens a file for appending, so that a rank that opens it again overwrites nothing.
fn append(how: &mut OpenOptions, path: &Path) -> anyhow::Result<File> {
    let file = how.append(true).open(path);
    file.with_context(|| format!("cannot make `{}`", path.display()))
}
