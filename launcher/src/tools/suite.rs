//! `rrun suite`: writes the jobs file of a known benchmark.
//!
//! ```text
//! jobs/src/suites ─► SuiteRow ─┬─► check ─► jobs.json
//!       --policy, --set ───────┘
//! ```
//! The file is one as users write them. It is checked as `eval` would check it before anything is
//! printed. `rrun list` describes the benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use jobs::count::counted;
use jobs::printable::printable;
use jobs::refusal::{Refusal, meant};
use jobs::rules;
use jobs::suites::{Request, SuiteRow};
use serde_json::Value;

use crate::tools::list::{Requirement, simulator};
use crate::tools::print_json;

/// Write the jobs file of a known benchmark with its authors' protocol.
///
/// `rrun list` lists the suites, and `rrun list NAME` describes one: its tasks, episodes, step limit,
/// seed, success, and where its authors define them. The jobs record the suite and the version of its
/// protocol.
#[derive(Debug, clap::Args)]
pub(super) struct SuiteArgs {
    /// Suite to write the jobs of
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    request: Request,

    /// Write the jobs file here [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &SuiteArgs) -> anyhow::Result<ExitCode> {
    let suite = SuiteRow::of(&args.name).ok_or_else(|| unknown(&args.name))?;
    let needed = simulator(suite);
    let file = suite.jobs_file(&args.request, &needed.path)?;
    let jobs = jobs::file::parse(&file).map_err(Refusal::new)?;
    jobs.iter()
        .try_for_each(|job| rules::check_job(job, false))?;
    let json = format!("{file:#}");
    match &args.output {
        Some(path) => std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write `{}`", path.display()))?,
        None => print_json(&json)?,
    }
    eprint!("{}", printable(&note(suite, &needed, &file)));
    Ok(ExitCode::SUCCESS)
}

fn unknown(found: &str) -> Refusal {
    let names = SuiteRow::all().map(|suite| suite.name.as_str());
    let hint = meant(found, names);
    Refusal::new(format_args!(
        "there is no suite `{found}`{hint}; `rrun list` lists them"
    ))
}

/// Returns what is said about a jobs file that was written.
fn note(suite: &SuiteRow, needed: &Requirement, file: &Value) -> String {
    let jobs = file["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let first = jobs.first().unwrap_or(&Value::Null);
    let mut text = format!(
        "rrun: {}: {} of {} each, protocol {} ({})\n",
        suite.name,
        counted(jobs.len(), "job"),
        counted(&first["num_episodes"], "episode"),
        suite.protocol,
        suite.authors
    );
    let overrides = first["suite"]["overrides"].as_array();
    let names: Vec<&str> = overrides
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !names.is_empty() {
        text += &format!("rrun: not those of the protocol: {}\n", names.join(", "));
    }
    if first["arena_env_args"]["python"] == *needed.path && !needed.is_there {
        text += &format!("rrun: the simulator {}\n", needed.is_missing());
    }
    text
}
