//! A comparison in Markdown, for comments on pull requests and summaries of CI servers.

use std::fmt::Write as _;

use jobs::table::{Table, in_markdown};
use report::compare::Comparison;
use report::compare::gate::GateResult;

use crate::tools::compare::text::{COLUMNS, about, rows, unpaired};

/// Returns tables in Markdown, for example for a comment.
pub(super) fn markdown(found: &Comparison, gate: Option<&GateResult>) -> String {
    let mut text = "### rrun compare\n\n".to_owned();
    if let Some(gate) = gate {
        let _ = writeln!(text, "**{gate}**\n");
    }
    let _ = writeln!(text, "A: {}  ", in_markdown(&about(&found.a)));
    let _ = writeln!(text, "B: {}\n", in_markdown(&about(&found.b)));

    text += &Table::new(COLUMNS, rows(found)).markdown();

    let notes: Vec<String> = notes(found).collect();
    if !notes.is_empty() {
        text.push('\n');
    }
    for note in notes {
        let _ = writeln!(text, "* {}", in_markdown(&note));
    }
    text.trim_end().to_owned()
}

/// Returns what was not paired, and differences other than the policy.
fn notes(found: &Comparison) -> impl Iterator<Item = String> {
    let left_out = unpaired(found)
        .into_iter()
        .map(|line| format!("not paired: {line}"));
    let warnings = found.warnings.iter();
    left_out.chain(warnings.map(|warning| format!("warning: {warning}")))
}
