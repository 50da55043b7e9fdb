//! `rrun compare A B`: compares two policies on the same episodes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use jobs::count::counted;
use jobs::table::grid;
use report::compare::{ComparedRun, Comparison, Paired, Side, compare};
use report::stats::paired::MeanDifference;

use crate::tools::{ToolError, print, print_json};

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

    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// A value of `--pair` that is not of the form `JOB=JOB`.
#[derive(Clone, Debug, thiserror::Error)]
#[error("`{0}` is not a pair: expected JOB=JOB, for example `reach=reach_new`")]
struct PairError(String);

fn names(text: &str) -> Result<(String, String), PairError> {
    let names = text
        .split_once('=')
        .filter(|(a, b)| !a.is_empty() && !b.is_empty());
    names
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .ok_or_else(|| PairError(text.to_owned()))
}

pub(super) fn run(args: &CompareArgs) -> Result<ExitCode, ToolError> {
    let (a, b) = (Side::read(&args.a)?, Side::read(&args.b)?);
    let renamed: BTreeMap<_, _> = args.pairs.iter().cloned().collect();
    for (of_a, of_b) in &args.pairs {
        for (side, name) in [(&a, of_a), (&b, of_b)] {
            if !side.has(name) {
                return Err(ToolError::NoJob {
                    path: side.path().to_owned(),
                    name: name.clone(),
                });
            }
        }
    }
    let found = compare(&a, &b, &renamed);
    if args.json {
        print_json(&serde_json::to_string_pretty(&found).map_err(std::io::Error::from)?)?;
    } else {
        print(shown(&found, args.per_job))?;
    }
    if found.overall.pairs == 0 {
        return Err(ToolError::NoPairs(why_none(&found, !args.pairs.is_empty())));
    }
    Ok(ExitCode::SUCCESS)
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

fn shown(found: &Comparison, per_job: bool) -> String {
    let mut text = format!("A: {}\nB: {}\n\n", about(&found.a), about(&found.b));
    let tasks = found.per_task.iter().filter(|_| found.per_task.len() > 1);
    let all = std::iter::once(("all", &found.overall));
    let rows: Vec<_> = tasks
        .map(|(task, paired)| (task.as_str(), paired))
        .chain(all)
        .map(row)
        .collect();
    text.push_str(&grid(
        ["Task", "Pairs", "A", "B", "B − A", "95 %", "McNemar p"],
        &rows,
    ));
    if per_job {
        let rows: Vec<_> = found
            .per_job
            .iter()
            .map(|(job, paired)| row((job, paired)))
            .collect();
        text.push_str(&grid(
            ["Job", "Pairs", "A", "B", "B − A", "95 %", "McNemar p"],
            &rows,
        ));
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
    text.trim_end().to_owned()
}

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
    let percent = |rate: f64| format!("{:.1} %", rate * 100.0);
    let signed = |rate: f64| format!("{:+.1}", rate * 100.0);
    let exact = |exact: bool| if exact { "" } else { " (corrected)" };
    [
        name.to_owned(),
        paired.pairs.to_string(),
        paired.rate_a.map_or_else(none, percent),
        paired.rate_b.map_or_else(none, percent),
        paired.difference.map_or_else(none, signed),
        paired.interval95.map_or_else(none, |[low, high]| {
            format!("{} to {}", signed(low), signed(high))
        }),
        paired.mcnemar.map_or_else(none, |test| {
            format!("{}{}", p_value(test.p), exact(test.exact))
        }),
    ]
}

fn p_value(p: f64) -> String {
    if p < 1e-4 {
        format!("{p:.1e}")
    } else {
        format!("{p:.4}")
    }
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
        let more = if names.len() > 5 { ", …" } else { "" };
        format!(
            "{} only in {side}: {}{more}",
            counted(names.len(), "job"),
            names[..names.len().min(5)].join(", ")
        )
    });
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    named
        .chain(counts.map(|(count, what)| format!("{} {what}", counted(count, "episode"))))
        .collect()
}
