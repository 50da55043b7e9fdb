//! A comparison for CI servers and pull requests.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};

use jobs::printable::printable;
use report::compare::Comparison;
use report::compare::gate::{GateResult, GateVerdict};

use crate::tools::compare::text::{COLUMNS, about, rows, unpaired};

/// Title of annotations and test suites.
const TITLE: &str = "rrun compare";

/// The variable with the file that GitHub shows as the summary of a job.
const SUMMARY: &str = "GITHUB_STEP_SUMMARY";

/// Returns tables in Markdown, for example for a comment.
pub(super) fn markdown(found: &Comparison, gate: Option<&GateResult>) -> String {
    let mut text = format!("### {TITLE}\n\n");
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

/// Returns workflow commands of GitHub Actions: an annotation for the result, and one for each
/// difference between the runs other than the policy.
pub(super) fn github(found: &Comparison, gate: Option<&GateResult>) -> String {
    let kind = match gate.map(|gate| gate.verdict) {
        Some(GateVerdict::Regression) => "error",
        Some(GateVerdict::Undecided { .. }) => "warning",
        Some(GateVerdict::Passed) | None => "notice",
    };
    let mut lines = vec![command(kind, &summary(found, gate))];
    let warnings = found.warnings.iter();
    lines.extend(warnings.map(|warning| command("warning", warning)));
    lines.join("\n")
}

/// Appends a text to the summary of the job, if this is one of GitHub's.
pub(super) fn add_to_summary(text: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os(SUMMARY).filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    writeln!(file, "{}", printable(text))
}

/// Returns a report in the format of JUnit, with one test: it fails for a regression, and is
/// skipped if there are too few episodes to tell.
pub(super) fn junit(found: &Comparison, gate: Option<&GateResult>) -> String {
    let verdict = gate.map(|gate| gate.verdict);
    let failures = u8::from(verdict == Some(GateVerdict::Regression));
    let is_undecided = matches!(verdict, Some(GateVerdict::Undecided { .. }));
    let skipped = u8::from(is_undecided);
    let said = in_xml(&summary(found, gate));
    let result = match verdict {
        Some(GateVerdict::Regression) => format!("\n      <failure message=\"{said}\"/>"),
        Some(GateVerdict::Undecided { .. }) => format!("\n      <skipped message=\"{said}\"/>"),
        Some(GateVerdict::Passed) | None => String::new(),
    };
    let name = format!(
        "{} against {}",
        found.b.path.display(),
        found.a.path.display()
    );
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="1" failures="{failures}" skipped="{skipped}">
  <testsuite name="{TITLE}" tests="1" failures="{failures}" errors="0" skipped="{skipped}">
    <testcase classname="{TITLE}" name="{}">{result}
      <system-out>{}</system-out>
    </testcase>
  </testsuite>
</testsuites>"#,
        in_xml(&name),
        in_xml(&crate::tools::compare::text::text(found, gate, true)),
    )
}

/// Returns the result in one line.
fn summary(found: &Comparison, gate: Option<&GateResult>) -> String {
    let [_, pairs, a, b, difference, interval, p] = rows(found).pop().unwrap_or_default();
    let said = gate.map_or_else(String::new, |gate| format!("{gate}. "));
    format!("{said}A {a}, B {b}, B − A {difference} (95 %: {interval}), p = {p}, {pairs} pairs")
}

/// Returns what was not paired, and differences other than the policy.
fn notes(found: &Comparison) -> impl Iterator<Item = String> {
    let left_out = unpaired(found)
        .into_iter()
        .map(|line| format!("not paired: {line}"));
    let warnings = found.warnings.iter();
    left_out.chain(warnings.map(|warning| format!("warning: {warning}")))
}

/// Returns a workflow command. Percent signs and ends of lines are written as GitHub's toolkit does
/// (`actions/toolkit`, `command.ts`).
fn command(kind: &str, message: &str) -> String {
    let message = message
        .replace('%', "%25")
        .replace('\r', "%0D")
        .replace('\n', "%0A");
    format!("::{kind} title={TITLE}::{message}")
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

/// Escapes a text for XML. Control characters, which XML does not have, are left out.
fn in_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(letter),
            '\u{fffe}' | '\u{ffff}' => {}
            letter if letter.is_control() => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_end_a_cell_or_a_command_or_an_element() {
        assert_eq!(in_markdown("a|b\nc<d>"), "a\\|b c\\<d>");
        assert_eq!(
            command("notice", "50 %\n::error::x"),
            "::notice title=rrun compare::50 %25%0A::error::x"
        );
        assert_eq!(
            in_xml("<a b=\"c\">&\u{1b}\n"),
            "&lt;a b=&quot;c&quot;&gt;&amp;\n"
        );
    }
}
