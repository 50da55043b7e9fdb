//! The report of an evaluation that did not end well: merged from plan and journals when rank 0 could not.

use std::time::SystemTime;

use jobs::journal;
use jobs::layout::RunFolder;
use jobs::report::{Context, Report};
use jobs::table;
use jobs::time::rfc3339;

use crate::agent::say;
use crate::plan::eval::EvalPlan;

/// Writes the report unless the one that is there says as much already, and says on stderr what there is.
pub fn write(plan: &EvalPlan) {
    let folder = RunFolder::new(&plan.output);
    if journal::in_use(&folder.journals()) {
        // Our ranks have ended: this one belongs to another evaluation, and so does the report.
        return;
    }
    let journals = match journal::read_all(&folder.journals()) {
        Ok(journals) => journals,
        Err(err) => return say(format_args!("cannot read the journals in `{}`: {err}", folder.journals().display())),
    };
    let lines: Vec<_> = journals.into_iter().flat_map(|(_, contents)| contents.lines).collect();
    let context = Context {
        argv: std::env::args().collect(),
        world_size: plan.run.world_size,
        route: "journals".to_owned(),
        missing_ranks: Vec::new(),
        stopped: Some("the launch did not end well".to_owned()),
        created: rfc3339(SystemTime::now()),
    };
    let merged = Report::new(&plan.run, &lines, context.clone());
    if written(&folder).is_some_and(|report| report.per_job == merged.per_job) {
        return;
    }
    match jobs::report::write(&folder, &plan.run, &lines, context) {
        Ok(report) => {
            say(format_args!("report of what was finished: {}", folder.report().display()));
            table::conclusion(&report).lines().for_each(|line| say(format_args!("  {line}")));
        }
        Err(err) => say(format_args!("cannot write the report into `{}`: {err}", folder.root().display())),
    }
}

fn written(folder: &RunFolder) -> Option<Report> {
    serde_json::from_slice(&std::fs::read(folder.report()).ok()?).ok()
}
