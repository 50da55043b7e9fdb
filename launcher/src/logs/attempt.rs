//! The log files of one attempt: made, given to the ranks, followed.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::logs::LogError;
use crate::logs::console;
use crate::logs::folder::{RunFolder, make};
use crate::logs::prefix::{Names, prefix};
use crate::logs::tail::{Filtered, Followed, Tail};
use crate::plan::{LogPlan, Plan, RankPlan};
use crate::process::command::{Output, Stream};

/// The log files of one attempt.
#[derive(Debug)]
pub struct AttemptLogs {
    /// One entry a local rank.
    pub ranks: Vec<RankLogs>,
    /// Who follows the teed files; `None` if none is teed.
    pub tail: Option<Tail>,
}

/// The files of one rank.
#[derive(Debug)]
pub struct RankLogs {
    /// What the process gets; taken when it starts.
    pub output: Option<Output>,
    /// `TORCHELASTIC_ERROR_FILE`; none with `--log-dir /dev/null`.
    pub error_file: Option<PathBuf>,
    /// The files that hold standard error and standard output, as far as these are captured, in this order: who fails
    /// says why on the first.
    pub captured: Vec<PathBuf>,
}

/// What the lines of all ranks have in common.
struct Tee<'a> {
    plan: &'a Plan,
    hostname: String,
    stdout: Option<Arc<Filtered>>,
    stderr: Option<Arc<Filtered>>,
}

impl AttemptLogs {
    /// Without log folder every rank writes to the console, whatever was to be redirected.
    pub fn disabled(nproc: usize) -> AttemptLogs {
        let rank = || RankLogs {
            output: Some(Output { stdout: Stream::Inherit, stderr: Stream::Inherit }),
            error_file: None,
            captured: Vec::new(),
        };
        AttemptLogs { ranks: (0..nproc).map(|_| rank()).collect(), tail: None }
    }

    /// Makes folders and files for all ranks of `plan`; `base_rank` is the global rank of the first.
    pub fn create(run: &RunFolder, attempt: u32, plan: &Plan, base_rank: usize) -> Result<AttemptLogs, LogError> {
        let folder = run.attempt(attempt)?;
        let LogPlan { duplicate_stdout, duplicate_stderr, .. } = &plan.logs;
        let hostname = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
        let stdout = filtered(folder.join("filtered_stdout.log"), duplicate_stdout)?;
        let stderr = filtered(folder.join("filtered_stderr.log"), duplicate_stderr)?;
        let tee = Tee { plan, hostname, stdout, stderr };
        let mut followed = Vec::new();
        let mut ranks = Vec::new();
        for (index, rank) in plan.ranks.iter().enumerate() {
            let folder = make(folder.join(rank.local_rank.to_string()), |path| fs::create_dir(path))?;
            ranks.push(RankLogs::create(&folder, rank)?);
            followed.extend(tee.followed(&folder, rank, base_rank + index));
        }
        let tail = if followed.is_empty() { None } else { Some(Tail::start(followed)?) };
        Ok(AttemptLogs { ranks, tail })
    }
}

impl RankLogs {
    fn create(folder: &Path, rank: &RankPlan) -> Result<RankLogs, LogError> {
        let (stdout, stderr) = (stdout_log(folder), stderr_log(folder));
        let captures = rank.redirect.or(rank.tee);
        let output = Output {
            stdout: stdio(captures.stdout, rank.shown, &stdout)?,
            stderr: stdio(captures.stderr, rank.shown, &stderr)?,
        };
        let error_file = Some(folder.join("error.json"));
        let captured = [(captures.stderr, stderr), (captures.stdout, stdout)];
        let captured = captured.into_iter().filter(|(is_captured, _)| *is_captured).map(|(_, path)| path).collect();
        Ok(RankLogs { output: Some(output), error_file, captured })
    }
}

impl Tee<'_> {
    fn followed(&self, folder: &Path, rank: &RankPlan, global: usize) -> Vec<Followed> {
        let names = Names {
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
        let stdout = rank.tee.stdout.then(|| followed(console::Stream::Stdout, stdout_log(folder), &self.stdout));
        let stderr = rank.tee.stderr.then(|| followed(console::Stream::Stderr, stderr_log(folder), &self.stderr));
        stdout.into_iter().chain(stderr).filter(|file| file.is_shown || file.filtered.is_some()).collect()
    }
}

fn stdout_log(folder: &Path) -> PathBuf {
    folder.join("stdout.log")
}

fn stderr_log(folder: &Path) -> PathBuf {
    folder.join("stderr.log")
}

fn stdio(is_captured: bool, is_shown: bool, path: &Path) -> Result<Stream, LogError> {
    match (is_captured, is_shown) {
        (true, _) => open(path.to_path_buf()).map(Stream::File),
        (false, true) => Ok(Stream::Inherit),
        (false, false) => Ok(Stream::Null),
    }
}

/// A new, empty file to append to, so that a rank that opens it again overwrites nothing.
fn open(path: PathBuf) -> Result<File, LogError> {
    match OpenOptions::new().create_new(true).append(true).open(&path) {
        Ok(file) => Ok(file),
        Err(err) => Err(LogError::Make { path, err }),
    }
}

fn filtered(path: PathBuf, substrings: &[String]) -> Result<Option<Arc<Filtered>>, LogError> {
    if substrings.is_empty() {
        return Ok(None);
    }
    Ok(Some(Arc::new(Filtered { file: open(path)?, substrings: substrings.to_vec() })))
}
