//! A comparison as a text for people.

use std::fmt::Write as _;

use jobs::count::{counted, listed};
use jobs::format::{p_value, points, points_interval, tenths};
use jobs::table::Table;
use report::compare::gate::GateResult;
use report::compare::{ComparedRun, Comparison, Paired};
use report::stats::paired::MeanDifference;

/// The columns of a row.
pub(super) const COLUMNS: [&str; 7] = ["Task", "Pairs", "A", "B", "B − A", "95 %", "McNemar p"];

/// Returns the tables, and what a gate says.
pub(super) fn text(found: &Comparison, gate: Option<&GateResult>, per_job: bool) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", about(&found.a), about(&found.b));
    text.push_str(&Table::new(COLUMNS, rows(found)).grid());
    if per_job {
        let jobs = found.per_job.iter();
        let head = ["Job", "Pairs", "A", "B", "B − A", "95 %", "McNemar p"];
        text += &Table::new(head, jobs.map(|(job, paired)| row((job, paired)))).grid();
    }
    let counts = found.overall.counts;
    let _ = writeln!(
        text,
        "{} solved by both, {} by A alone, {} by B alone, {} by neither",
        counts.both, counts.only_a, counts.only_b, counts.neither
    );
    let Paired {
        returns,
        max_rewards,
        lengths,
        ..
    } = found.overall;
    for (name, difference) in [
        ("return", returns),
        ("largest reward", max_rewards),
        ("steps", lengths),
    ] {
        if let Some(difference) = difference {
            let _ = writeln!(text, "{name}: {}", mean(difference));
        }
    }
    unpaired(found)
        .into_iter()
        .for_each(|line| text.push_str(&format!("not paired: {line}\n")));
    found
        .warnings
        .iter()
        .for_each(|warning| text.push_str(&format!("warning: {warning}\n")));
    if let Some(gate) = gate {
        let _ = writeln!(text, "{gate}");
    }
    text.trim_end().to_owned()
}

/// Returns a row for each task, if there are several, and one for all of them.
pub(super) fn rows(found: &Comparison) -> Vec<[String; 7]> {
    let tasks = found.per_task.iter().filter(|_| found.per_task.len() > 1);
    let all = std::iter::once(("all", &found.overall));
    tasks
        .map(|(task, paired)| (task.as_str(), paired))
        .chain(all)
        .map(row)
        .collect()
}

/// Describes one side: its path, policies and number of episodes.
pub(super) fn about(side: &ComparedRun) -> String {
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
pub(super) fn unpaired(found: &Comparison) -> Vec<String> {
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
