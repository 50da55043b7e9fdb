//! Writes the report of an evaluation that did not end well, from plan and journals, because rank 0
//! could not write it.

use std::io;

use jobs::layout::RunFolder;
use jobs::live::Commands;
use jobs::plan::RunPlan;
use jobs::{journal, launch};
use report::tables;
use report::{Context, Journals, Merged, Report};

use crate::agent::folder_lock::FolderLock;
use crate::plan::eval::EvalPlan;
use crate::say::{self, Level};

/// Writes the report, unless the existing one is as complete, and prints a summary on stderr.
pub fn write(plan: &EvalPlan, lock: &FolderLock) {
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
        ..Context::now(plan.run.world_size)
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
        let made = std::process::Command::new("mkfifo")
            .arg(folder.report())
            .status();
        assert!(made.unwrap().success());
        assert!(Report::read(&folder).is_none());
    }
}
