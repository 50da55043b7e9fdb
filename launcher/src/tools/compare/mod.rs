//! `rrun compare A B`: compares two policies on the same episodes.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;

use jobs::refusal::Refusal;
use report::compare::gate::{Gate, GateResult, GateVerdict};
use report::compare::{Comparison, Side, compare};

use crate::tools::{print, print_json};
use crate::verdict::{LOST, UNDECIDED};

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

    /// Exit with 1 if B has solved significantly fewer episodes and has lost 5 percentage points, or
    /// another margin, or more; with 3 if there are too few episodes to tell
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
    show(&judged, args)?;
    if judged.comparison.overall.pairs == 0 {
        let reason = why_none(&judged.comparison, !args.pairs.is_empty());
        return Err(Refusal::at("no episodes can be paired", reason).into());
    }
    Ok(match gate.map(|gate| gate.verdict) {
        None | Some(GateVerdict::Passed) => ExitCode::SUCCESS,
        Some(GateVerdict::Regression) => ExitCode::from(LOST),
        Some(GateVerdict::Undecided) => ExitCode::from(UNDECIDED),
    })
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

/// Prints a comparison in the format that was asked for.
fn show(judged: &Judged, args: &CompareArgs) -> std::io::Result<()> {
    let (found, gate) = (&judged.comparison, judged.gate.as_ref());
    if args.json {
        return print_json(&serde_json::to_string_pretty(judged)?);
    }
    if args.markdown {
        return print(text::markdown(found, gate, args.per_job));
    }
    print(text::text(found, gate, args.per_job))
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
