//! `--dry-run`: describes a plan for people. `--dry-run=json` prints the plan itself.
//!
//! ```text
//! LaunchPlan ──────────────────────► program     any program: ranks, command, variables, logs
//!   └── EvalPlan ──► work (done) ──► evaluation  ranks with their jobs, files, memory
//! ```
//! Everything here only reads: the plan, and for an evaluation the journals of its run folder.

mod evaluation;
mod program;
mod work;

use std::fmt::Write as _;

use jobs::printable::printable_line;

use crate::plan::{Backend, LaunchPlan};

/// Number of columns that the names of facts have.
const MARGIN: usize = 10;

/// Returns the text for a plan.
pub fn text(plan: &LaunchPlan) -> String {
    match &plan.eval {
        Some(eval) => evaluation::text(plan, eval),
        None => program::text(plan),
    }
}

/// Appends the first line: how many ranks of what.
fn headline(text: &mut String, plan: &LaunchPlan) {
    let ranks = jobs::count::counted(plan.ranks.len(), "rank");
    let title = printable_line(&plan.title);
    let _ = match plan.nnodes {
        1 => writeln!(text, "{ranks} of `{title}`; nothing was started\n"),
        nodes => writeln!(
            text,
            "{ranks} of `{title}` on this node, of {}{nodes} nodes; nothing was started\n",
            if is_elastic(plan) { "at most " } else { "" }
        ),
    };
}

/// Returns whether the number of nodes is open.
fn is_elastic(plan: &LaunchPlan) -> bool {
    let rendezvous = plan.rendezvous.as_ref();
    rendezvous.is_some_and(|meeting| meeting.min != meeting.max)
}

/// Appends a fact, which may have several lines, or none.
fn fact(text: &mut String, name: &str, lines: impl IntoIterator<Item = String>) {
    for (index, line) in lines.into_iter().enumerate() {
        let name = if index == 0 { name } else { "" };
        let _ = writeln!(text, "{name:<MARGIN$} {}", printable_line(&line));
    }
}

/// Returns the global rank of the rank at `index` on this node, if that is known before the nodes
/// meet.
fn global_rank(plan: &LaunchPlan, index: usize) -> Option<usize> {
    let rank = plan.ranks.get(index)?;
    if let Some(rank) = rank.env.get("RANK") {
        return rank.parse().ok();
    }
    match &plan.rendezvous {
        None => Some(index),
        Some(meeting) if meeting.backend == Backend::Static => {
            let node = usize::try_from(meeting.node_rank).ok()?;
            Some(node * plan.ranks.len() + index)
        }
        Some(_) => None,
    }
}
