//! A comparison in Markdown, for comments on pull requests and summaries of CI servers.

use std::fmt::Write as _;

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

    let _ = writeln!(text, "| {} |", COLUMNS.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(COLUMNS.len()));
    for row in rows(found) {
        let cells = row.map(|cell| in_markdown(&cell));
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }

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

/// Escapes what would end a cell of a table, or begin HTML, code or emphasis.
fn in_markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '|' | '<' | '`' | '*' | '_' | '[' | '\\') {
            escaped.push('\\');
        }
        escaped.push(if letter == '\n' { ' ' } else { letter });
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_a_cell_or_begin_an_element() {
        assert_eq!(in_markdown("a|b\nc<d>"), "a\\|b c\\<d>");
    }
}
