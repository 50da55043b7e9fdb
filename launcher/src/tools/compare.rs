//! `rrun compare A B`: compares two policies on the same episodes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use jobs::count::{counted, listed};
use jobs::format::{p_value, points, points_interval, tenths};
use jobs::refusal::Refusal;
use jobs::table::{Table, in_markdown};
use report::compare::gate::{Gate, GateResult};
use report::compare::{ComparedRun, Comparison, Paired, Side, compare};
use report::stats::paired::MeanDifference;

use crate::tools::print_as;
use crate::verdict::code;

/// The margin of `--fail-on regression`, in percentage points.
const MARGIN: f64 = 5.0;

/// Compare two runs episode by episode: only episodes of the same job, number and seed are paired.
///
/// Every difference is B − A. Solved episodes: McNemar's test (exact up to 1000 pairs that differ,
/// with a continuity correction beyond that) and Newcombe's interval for paired rates; returns,
/// largest rewards and steps: mean difference with Student's interval.
#[derive(Debug, clap::Args)]
pub(super) struct CompareArgs {
    /// Run folder, report.json or episodes.jsonl
    #[arg(value_name = "A")]
    a: PathBuf,

    /// The same for the other policy
    #[arg(value_name = "B")]
    b: PathBuf,

    /// Pair a job of A with a job of B that has another name
    #[arg(long = "pair", value_name = "JOB=JOB", value_parser = names)]
    pairs: Vec<(String, String)>,

    /// Also print a row for each job
    #[arg(long)]
    per_job: bool,

    /// Exit with 1 if B has solved significantly fewer episodes and has lost 5 percentage points,
    /// or another margin, or more; with 3 if there are too few episodes to tell
    #[arg(long, value_name = "regression[:POINTS]", value_parser = gate)]
    fail_on: Option<Gate>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print tables in Markdown, for a comment or the summary of a CI server
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

fn gate(text: &str) -> Result<Gate, Refusal> {
    let points = match text.split_once(':') {
        None if text == "regression" => Some(MARGIN),
        Some(("regression", points)) => points.parse().ok(),
        _ => None,
    };
    // No policy can lose more than everything.
    let margin = points.filter(|points| *points > 0.0 && *points < 100.0);
    margin
        .map(|points| Gate {
            margin: points / 100.0,
        })
        .ok_or_else(|| {
            Refusal::new(
                "expected regression or regression:POINTS, percentage points above 0 and below \
                 100, for example `regression:2.5`",
            )
        })
}

fn names(text: &str) -> Result<(String, String), Refusal> {
    let names = text
        .split_once('=')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    names
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .ok_or_else(|| {
            Refusal::new(format_args!(
                "`{text}` is not a pair: expected JOB=JOB, for example `reach=reach_new`"
            ))
        })
}

/// A comparison, with what the gate says.
#[derive(Debug, serde::Serialize)]
struct Judged {
    #[serde(flatten)]
    comparison: Comparison,
    #[serde(skip_serializing_if = "Option::is_none")]
    gate: Option<GateResult>,
}

pub(super) fn run(args: &CompareArgs) -> anyhow::Result<ExitCode> {
    let (a, b) = (Side::read(&args.a)?, Side::read(&args.b)?);
    let renamed: BTreeMap<_, _> = args.pairs.iter().cloned().collect();
    check_once(&args.pairs)?;
    for (of_a, of_b) in &args.pairs {
        for (side, name) in [(&a, of_a), (&b, of_b)] {
            if !side.has(name) {
                let path = side.path.display();
                return Err(Refusal::new(format_args!("`{path}` has no job `{name}`")).into());
            }
        }
    }

    let comparison = compare(&a, &b, &renamed);
    let gate = args
        .fail_on
        .map(|gate| gate.judge(comparison.overall.counts));
    let judged = Judged { comparison, gate };
    let (found, per_job) = (&judged.comparison, args.per_job);
    print_as(args.json, &judged, || match args.markdown {
        true => markdown(found, gate.as_ref(), per_job),
        false => text(found, gate.as_ref(), per_job),
    })?;
    if judged.comparison.overall.pairs == 0 {
        let reason = why_none(&judged.comparison, !args.pairs.is_empty());
        return Err(Refusal::at("no episodes can be paired", reason).into());
    }
    Ok(ExitCode::from(gate.map_or(0, |gate| code(gate.verdict))))
}

/// Checks that no job is paired with two others.
fn check_once(pairs: &[(String, String)]) -> Result<(), Refusal> {
    let mut seen = BTreeSet::new();
    for (a, b) in pairs {
        for named in [("A", a), ("B", b)] {
            let (side, job) = named;
            if !seen.insert(named) {
                return Err(Refusal::new(format_args!(
                    "--pair names the job `{job}` of {side} twice, expected each job once"
                )));
            }
        }
    }
    Ok(())
}

/// Returns why there is nothing to compare, and what helps.
fn why_none(found: &Comparison, is_paired_by_name: bool) -> &'static str {
    let unpaired = &found.unpaired;
    if unpaired.other_seed > 0 && is_paired_by_name {
        return "their episodes are from different seeds; jobs of different names have the same ones where both have the \
                same `seed`";
    }
    if unpaired.other_seed > 0 {
        return "their episodes are from different seeds; give both runs the same --seed, or their jobs the same `seed`";
    }
    if found.per_job.is_empty() {
        return "they have no job in common; --pair JOB=JOB pairs those of different names";
    }
    "no episode was finished in both"
}

/// Returns the tables for the terminal, and what a gate says.
fn text(found: &Comparison, gate: Option<&GateResult>, per_job: bool) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", about(&found.a), about(&found.b));
    for table in tables(found, per_job) {
        text += &table.grid();
    }
    let gate = gate.map(ToString::to_string);
    let lines: Vec<_> = notes(found).into_iter().chain(gate).collect();
    text + &lines.join("\n")
}

/// Returns the same in Markdown, for example for a comment: what a gate says comes first.
fn markdown(found: &Comparison, gate: Option<&GateResult>, per_job: bool) -> String {
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

/// Returns what the tables do not say: other measures, what was left out, and differences other
/// than the policy.
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
