//! The evaluation of one checkpoint: `rrun … eval` in a process group of its own, with a run folder,
//! a jobs file and a log for each checkpoint.
//!
//! ```text
//! <output>/<checkpoint>/             run folder, resumed if it is there
//!          <checkpoint>.jobs.json    the jobs with this checkpoint
//!          <checkpoint>.log          what the evaluation printed
//! ```

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use jobs::layout::{RunFolder, write_whole};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use report::Report;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::tools::{end_of, evaluation};

/// Number of letters of an evaluation's last line that are kept.
const LAST_LINE: usize = 300;

/// The files of a checkpoint's evaluation.
#[derive(Clone, Debug)]
pub(super) struct EvaluationFiles {
    pub(super) run: RunFolder,
    jobs: PathBuf,
    log: PathBuf,
}

impl EvaluationFiles {
    pub(super) fn new(output: &Path, name: &str) -> Self {
        Self {
            run: RunFolder::new(&output.join(name)),
            jobs: output.join(format!("{name}.jobs.json")),
            log: output.join(format!("{name}.log")),
        }
    }

    /// Returns the report, if every episode is in it.
    pub(super) fn complete_report(&self) -> Option<Report> {
        Report::read(&self.run).filter(Report::complete)
    }

    /// Starts the evaluation of these jobs, or goes on with it.
    pub(super) fn start(&self, jobs: &Value, words: &[OsString]) -> io::Result<Child> {
        write_whole(&self.jobs, &serde_json::to_vec_pretty(jobs)?)?;
        let log = File::create(&self.log)?;
        let mut command = Command::from(evaluation::asked(words)?);
        command
            .arg("--jobs")
            .arg(&self.jobs)
            .arg("--output")
            .arg(self.run.root());
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        // Signals of the terminal reach the watch alone, which passes them on.
        command.process_group(0);
        // The watch stops it in order; this is for a panic.
        command.kill_on_drop(true);
        command.spawn()
    }

    /// Returns why there is no complete report.
    pub(super) fn failure(&self, status: io::Result<ExitStatus>) -> String {
        let ended = match status {
            Ok(status) if status.success() => "its report is not complete".to_owned(),
            Ok(status) => status.to_string(),
            Err(err) => err.to_string(),
        };
        let log = end_of(&self.log).unwrap_or_default();
        let report = Report::read(&self.run);
        let told = report.and_then(|report| report.failures.first().cloned());
        let mut errors = log.lines().filter(|line| line.contains("error:"));
        let line = told
            .map(|failure| failure.reason)
            .or(errors.next_back().map(str::to_owned));
        let last = line
            .or(log.lines().last().map(str::to_owned))
            .unwrap_or_default();
        let last: String = last.chars().take(LAST_LINE).collect();
        format!("{last} ({ended}; see {})", self.log.display())
    }
}

/// Sends a signal to an evaluation.
pub(super) fn signal(child: &Child, number: i32) {
    let group = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let (Some(group), Ok(signal)) = (group, Signal::try_from(number)) {
        // It may have ended by itself.
        let _ = killpg(Pid::from_raw(group), signal);
    }
}
