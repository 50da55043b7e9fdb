//! A comparison as text: in the terminal, and in Markdown for comments on pull requests and summaries
//! of CI servers.

use jobs::count::{counted, listed};
use jobs::format::{p_value, points, points_interval, tenths};
use jobs::table::{Table, in_markdown};
use report::compare::gate::GateResult;
use report::compare::{ComparedRun, Comparison, Paired};
use report::stats::paired::MeanDifference;

/// Returns the tables for the terminal, and what a gate says.
pub(super) fn text(found: &Comparison, gate: Option<&GateResult>, per_job: bool) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", about(&found.a), about(&found.b));
    for table in tables(found, per_job) {
        text += &table.grid();
    }
    let gate = gate.map(ToString::to_string);
    let lines: Vec<_> = notes(found).into_iter().chain(gate).collect();
    text + &lines.join("\n")
}

/// Returns the same in Markdown, for example for a comment: what a gate says comes first.
pub(super) fn markdown(found: &Comparison, gate: Option<&GateResult>, per_job: bool) -> String {
    let mut text = "### rrun compare\n\n".to_owned();
    if let Some(gate) = gate {
        text += &format!("**{gate}**\n\n");
    }
    let [a, b] = [&found.a, &found.b].map(|side| in_markdown(&about(side)));
    text += &format!("A: {a}  \nB: {b}\n\n");
    for table in tables(found, per_job) {
        text += &table.markdown();
        text.push('\n');
    }
    for note in notes(found) {
        text += &format!("* {}\n", in_markdown(&note));
    }
    text.trim_end().to_owned()
}

/// Returns the table of all tasks, and if asked for that of all jobs.
fn tables(found: &Comparison, per_job: bool) -> Vec<Table<7>> {
    let head = |first| [first, "Pairs", "A", "B", "B − A", "95 %", "McNemar p"];
    // A row for each task, if there are several, and one for all of them.
    let tasks = found.per_task.iter().filter(|_| found.per_task.len() > 1);
    let all = std::iter::once(("all", &found.overall));
    let tasks = tasks.map(|(task, paired)| (task.as_str(), paired));
    let mut tables = vec![Table::new(head("Task"), tasks.chain(all).map(row))];
    if per_job {
        let jobs = found.per_job.iter();
        let rows = jobs.map(|(job, paired)| row((job, paired)));
        tables.push(Table::new(head("Job"), rows));
    }
    tables
}

/// Describes one side: its path, policies and number of episodes.
fn about(side: &ComparedRun) -> String {
    let policies = if side.policies.is_empty() {
        String::new()
    } else {
        format!(" ({})", side.policies.join(", "))
    };
    format!(
        "{}{policies}, {} episodes",
        side.path.display(),
        side.episodes
    )
}

fn row((name, paired): (&str, &Paired)) -> [String; 7] {
    let none = || "-".to_owned();
    let exact = |exact: bool| if exact { "" } else { " (corrected)" };
    [
        name.to_owned(),
        paired.pairs.to_string(),
        paired.rate_a.map_or_else(none, tenths),
        paired.rate_b.map_or_else(none, tenths),
        paired.difference.map_or_else(none, points),
        paired.interval95.map_or_else(none, points_interval),
        paired.mcnemar.map_or_else(none, |test| {
            format!("{}{}", p_value(test.p), exact(test.exact))
        }),
    ]
}

/// Returns what the tables do not say: other measures, what was left out, and differences other than
/// the policy.
fn notes(found: &Comparison) -> Vec<String> {
    let (all, counts) = (&found.overall, found.overall.counts);
    let mut notes = vec![format!(
        "{} solved by both, {} by A alone, {} by B alone, {} by neither",
        counts.both, counts.only_a, counts.only_b, counts.neither
    )];
    let measures = [
        ("return", all.returns),
        ("largest reward", all.max_rewards),
        ("steps", all.lengths),
    ];
    let measures = measures.into_iter();
    notes.extend(measures.filter_map(|(name, found)| Some(format!("{name}: {}", mean(found?)))));
    let left_out = unpaired(found).into_iter();
    notes.extend(left_out.map(|line| format!("not paired: {line}")));
    let warnings = found.warnings.iter();
    notes.extend(warnings.map(|warning| format!("warning: {warning}")));
    notes
}

fn mean(difference: MeanDifference) -> String {
    let MeanDifference {
        mean, interval95, ..
    } = difference;
    let interval = interval95.map_or_else(String::new, |[low, high]| {
        format!(" (95 %: {low:+.4} to {high:+.4})")
    });
    format!("{mean:+.4}{interval}")
}

/// Describes what was left out, one line each.
fn unpaired(found: &Comparison) -> Vec<String> {
    let unpaired = &found.unpaired;
    let counts = [
        (unpaired.episodes_of_a, "only in A"),
        (unpaired.episodes_of_b, "only in B"),
        (unpaired.other_seed, "from different seeds"),
        (unpaired.errors_of_a, "broken by an error in A"),
        (unpaired.errors_of_b, "broken by an error in B"),
    ];
    let jobs = [(&unpaired.jobs_of_a, "A"), (&unpaired.jobs_of_b, "B")]
        .into_iter()
        .filter(|(names, _)| !names.is_empty());
    let named = jobs.map(|(names, side)| {
        let count = counted(names.len(), "job");
        format!("{count} only in {side}: {}", listed(names, 5))
    });
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    named
        .chain(counts.map(|(count, what)| format!("{} {what}", counted(count, "episode"))))
        .collect()
}
