//! The exit codes of a verdict about a run: those of `rrun compare --fail-on`, and of an evaluation
//! that a sequential test may end (`rrun eval --stop-when`); and the report of an evaluation that
//! did not end well, from plan and journals, because rank 0 could not write it.

use std::io;
use std::process::ExitCode;

use jobs::journal::Verdict;
use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::usage::with_dashes;
use jobs::{journal, launch};
use report::{Context, Journals, Merged, Report, tables};

use crate::agent::event::LaunchEnd;
use crate::agent::folder_lock::FolderLock;
use crate::cli::Cli;
use crate::plan::LaunchPlan;
use crate::plan::eval::EvalPlan;
use crate::say::{self, Level};

/// Exit code of a significant loss or difference.
const LOST: u8 = 1;

/// Exit code of an error.
pub const ERROR: u8 = 2;

/// Exit code if there are too few episodes to tell.
const UNDECIDED: u8 = 3;

/// Returns the exit code of a verdict.
pub fn code(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Passed | Verdict::Same => 0,
        Verdict::Regression | Verdict::Different => LOST,
        Verdict::Undecided => UNDECIDED,
    }
}

/// Returns the exit code of a launch: that of its verdict if a sequential test was to decide. A
/// launch that failed is then an error, which is not to be mistaken for a loss.
pub fn exit_code(plan: &LaunchPlan, end: LaunchEnd) -> ExitCode {
    let judged = plan.eval.as_ref().filter(|eval| eval.early_stop.is_some());
    match (judged, end) {
        (Some(eval), LaunchEnd::Succeeded) => match verdict(eval) {
            Some(verdict) => ExitCode::from(code(verdict)),
            // Another node has the report.
            None if plan.rendezvous.is_some() => ExitCode::SUCCESS,
            None => ExitCode::from(ERROR),
        },
        (None, end) | (Some(_), end @ LaunchEnd::Killed { .. }) => end.exit_code(),
        (Some(_), _) => ExitCode::from(ERROR),
    }
}

/// Returns the exit code of an evaluation that is refused; `code` is that of other launches.
pub fn of_refusal(cli: &Cli, code: ExitCode) -> ExitCode {
    let is_judged = cli.args.iter().any(|word| {
        with_dashes(word)
            .to_str()
            .is_some_and(|word| word.split('=').next() == Some("--stop-when"))
    });
    match cli.built_in() == Some("eval") && is_judged {
        true => ExitCode::from(ERROR),
        false => code,
    }
}

/// Returns whether an evaluation whose ranks have succeeded lacks what a user has left out on its
/// page.
pub fn is_left_out(eval: &EvalPlan) -> bool {
    let report = eval.page.as_ref().and_then(|_| report(eval));
    report.is_some_and(|report| !report.complete() && report.lacks_only_what_was_asked())
}

/// Returns whether the report of an evaluation lacks no episode.
pub fn is_complete(eval: &EvalPlan) -> bool {
    report(eval).is_some_and(|report| report.complete())
}

/// Reads the verdict of a run that has ended.
fn verdict(eval: &EvalPlan) -> Option<Verdict> {
    Some(report(eval)?.decision?.verdict)
}

fn report(eval: &EvalPlan) -> Option<Report> {
    Report::read(&RunFolder::new(&eval.output))
}

/// Writes the report, unless the existing one is as complete, and prints a summary on stderr.
pub fn write_report(plan: &EvalPlan, lock: &FolderLock) {
    let folder = RunFolder::new(&plan.output);
    if journal::in_use(&folder.journals()) || launch::other_holder(&folder, lock.launch()).is_some()
    {
        // The ranks here have ended, so the lock belongs to another evaluation, and so does the
        // report.
        return;
    }
    match renewed(plan, &folder) {
        Ok(Some(report)) => {
            say::say(
                Level::Result,
                format_args!("report of what was finished: {}", folder.report().display()),
            );
            tables::conclusion(&report)
                .lines()
                .for_each(|line| say::say(Level::Result, format_args!("  {line}")));
        }
        Ok(None) => {}
        Err(err) => say::error(format_args!(
            "cannot write the report into `{}`: {err}",
            folder.root().display()
        )),
    }
}

/// Writes the report; returns `None` if the existing one is as complete.
fn renewed(plan: &EvalPlan, folder: &RunFolder) -> io::Result<Option<Report>> {
    // In a resumed run, the jobs may have another order than in the file.
    let run = RunPlan::read(folder).unwrap_or_else(|_| plan.run.clone());
    let merged = Merged::new(run, Journals::of(folder)?)?;
    let context = Context {
        stopped: Some("the launch ended early".to_owned()),
        commands: Commands::found(folder),
        ..Context::now()
    };
    let report = Report::of(&merged, context)?;
    if Report::read(folder).is_some_and(|written| written.per_job == report.per_job) {
        return Ok(None);
    }
    report::write_merged(folder, &merged, &report, None)?;
    Ok(Some(report))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_in_place_of_the_report_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        nix::unistd::mkfifo(&folder.report(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Report::read(&folder).is_none());
    }
}
