//! The exit codes of a verdict about a run: those of `rrun compare --fail-on`, and of an evaluation
//! that a sequential test may end (`rrun eval --stop-when`).

use std::process::ExitCode;

use jobs::eval_args::with_dashes;
use jobs::journal::Verdict;
use jobs::layout::RunFolder;
use report::Report;

use crate::agent::event::LaunchEnd;
use crate::cli::Cli;
use crate::plan::LaunchPlan;
use crate::plan::eval::EvalPlan;

/// Exit code of a significant loss or difference.
pub const LOST: u8 = 1;

/// Exit code of an error.
pub const ERROR: u8 = 2;

/// Exit code if there are too few episodes to tell.
pub const UNDECIDED: u8 = 3;

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

/// Returns how an evaluation has ended whose launch has ended like this: a user may have left out a
/// part of it on its page, which is no failure of a rank.
pub fn with_page(eval: &EvalPlan, end: LaunchEnd) -> LaunchEnd {
    if end != LaunchEnd::Succeeded || eval.page.is_none() {
        return end;
    }
    match report(eval) {
        Some(report) if !report.complete() && report.lacks_only_what_was_asked() => {
            LaunchEnd::LeftOut
        }
        _ => end,
    }
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
