//! The log files of one attempt: creates them, hands them to the ranks, and follows them.

use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::logs::LogError;
use crate::logs::console;
use crate::logs::folder::LogFolder;
use crate::logs::prefix::{PrefixNames, prefix};
use crate::logs::tail::{Filtered, Followed, Tail};
use crate::plan::{LaunchPlan, LogPlan, RankPlan};
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

/// What the lines of all ranks of one attempt have in common.
struct Tee<'a> {
    plan: &'a LaunchPlan,
    hostname: String,
    stdout: Option<Arc<Filtered>>,
    stderr: Option<Arc<Filtered>>,
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
    pub fn create(
        run: &LogFolder,
        plan: &LaunchPlan,
        writers: &[LoggedRank],
    ) -> Result<AttemptLogs, LogError> {
        let mut tees: BTreeMap<PathBuf, Tee<'_>> = BTreeMap::new();
        let mut followed = Vec::new();
        let mut ranks = Vec::new();
        for writer in writers {
            let Some(rank) = plan.ranks.get(writer.rank.index) else {
                continue;
            };
            let attempt = run.attempt(writer.attempt, rank.local_rank)?;
            let folder = attempt.join(rank.local_rank.to_string());
            let tee = match tees.entry(attempt) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let tee = Tee::new(plan, new.key())?;
                    new.insert(tee)
                }
            };
            ranks.push(RankLogs::create(&folder, rank)?);
            followed.extend(tee.followed(&folder, rank, writer.rank.global));
        }
        let tail = if followed.is_empty() {
            None
        } else {
            Some(Tail::start(followed)?)
        };
        Ok(AttemptLogs { ranks, tail })
    }
}

impl RankLogs {
    fn create(folder: &Path, rank: &RankPlan) -> Result<RankLogs, LogError> {
        let (stdout, stderr) = (stdout_log(folder), stderr_log(folder));
        let captures = rank.redirect.or(rank.tee);
        let output = ChildOutput {
            stdout: stdio(captures.stdout, rank.shown, &stdout)?,
            stderr: stdio(captures.stderr, rank.shown, &stderr)?,
        };
        let error_file = Some(folder.join("error.json"));
        let captured = [(captures.stderr, stderr), (captures.stdout, stdout)];
        let captured = captured
            .into_iter()
            .filter(|(is_captured, _)| *is_captured)
            .map(|(_, path)| path)
            .collect();
        Ok(RankLogs {
            output: Some(output),
            error_file,
            captured,
        })
    }
}

impl<'a> Tee<'a> {
    fn new(plan: &'a LaunchPlan, folder: &Path) -> Result<Tee<'a>, LogError> {
        let LogPlan {
            duplicate_stdout,
            duplicate_stderr,
            ..
        } = &plan.logs;
        let hostname = jobs::host::name();
        let stdout = filtered(folder.join("filtered_stdout.log"), duplicate_stdout)?;
        let stderr = filtered(folder.join("filtered_stderr.log"), duplicate_stderr)?;
        Ok(Tee {
            plan,
            hostname,
            stdout,
            stderr,
        })
    }

    fn followed(&self, folder: &Path, rank: &RankPlan, global: usize) -> Vec<Followed> {
        let names = PrefixNames {
            role_name: &self.plan.role,
            local_rank: rank.local_rank,
            rank: global,
            hostname: self.hostname.split('.').next().unwrap_or_default(),
        };
        let prefix = prefix(self.plan.logs.prefix_template.as_deref(), &names);
        let followed = |stream, path, filtered: &Option<Arc<Filtered>>| Followed {
            path,
            prefix: prefix.clone(),
            stream,
            is_shown: rank.shown,
            filtered: filtered.clone(),
        };
        let stdout = rank.tee.stdout.then(|| {
            followed(
                console::ConsoleStream::Stdout,
                stdout_log(folder),
                &self.stdout,
            )
        });
        let stderr = rank.tee.stderr.then(|| {
            followed(
                console::ConsoleStream::Stderr,
                stderr_log(folder),
                &self.stderr,
            )
        });
        stdout
            .into_iter()
            .chain(stderr)
            .filter(|file| file.is_shown || file.filtered.is_some())
            .collect()
    }
}

fn stdout_log(folder: &Path) -> PathBuf {
    folder.join("stdout.log")
}

fn stderr_log(folder: &Path) -> PathBuf {
    folder.join("stderr.log")
}

fn stdio(is_captured: bool, is_shown: bool, path: &Path) -> Result<OutputStream, LogError> {
    match (is_captured, is_shown) {
        (true, _) => {
            open(OpenOptions::new().create_new(true), path.to_path_buf()).map(OutputStream::File)
        }
        (false, true) => Ok(OutputStream::Inherit),
        (false, false) => Ok(OutputStream::Null),
    }
}

/// Opens a file for appending, so that a rank that opens it again overwrites nothing.
fn open(how: &mut OpenOptions, path: PathBuf) -> Result<File, LogError> {
    match how.append(true).open(&path) {
        Ok(file) => Ok(file),
        Err(err) => Err(LogError::Make { path, err }),
    }
}

/// Opens the file for filtered lines; ranks that restart alone append to the file of their attempt.
fn filtered(path: PathBuf, substrings: &[String]) -> Result<Option<Arc<Filtered>>, LogError> {
    if substrings.is_empty() {
        return Ok(None);
    }
    let file = open(OpenOptions::new().create(true), path)?;
    Ok(Some(Arc::new(Filtered {
        file,
        substrings: substrings.to_vec(),
    })))
}
