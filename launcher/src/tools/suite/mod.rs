//! `rrun suite`: lists known benchmarks, describes one, or writes its jobs file.
//!
//! ```text
//! jobs/src/suites ─► SuiteRow ─┬─► text                      rrun suite, rrun suite NAME
//!      --policy, --set ─► asked ┴─► check ─► jobs.json        rrun suite NAME --policy TYPE
//! ```
//! The file is one as users write them. It is checked as `eval` would check it before anything is
//! printed.

mod asked;
mod text;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use jobs::printable::printable;
use jobs::refusal::{LIKE_NAME, Refusal, most_similar};
use jobs::rules;
use jobs::suites::SuiteRow;
use serde_json::Value;

use crate::installed::suites;
use crate::node::Node;
use crate::tools::list::{self, IN_SOURCE, is_same_folder};
use crate::tools::suite::asked::Asked;
pub(in crate::tools) use crate::tools::suite::text::description;
use crate::tools::{print, print_json};

/// List known benchmarks, or write the jobs file of one with its authors' protocol.
///
/// Without NAME, lists the suites. With NAME, describes one: its tasks, episodes, step limit,
/// seed, success, and where its authors define them. With --policy, prints a jobs file for `rrun
/// eval`, which records the suite and the version of its protocol.
#[derive(Debug, clap::Args)]
pub(super) struct SuiteArgs {
    /// Suite to describe, or to write the jobs of [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    asked: Asked,

    /// Write the jobs file here [default: standard output]
    #[arg(long, value_name = "FILE", requires = "policy")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: SuiteArgs) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.name else {
        if args.asked.policy().is_some() {
            let reason = "--policy was given without a suite; `rrun suite` lists them";
            return Err(Refusal::new(reason).into());
        }
        print(text::list())?;
        return Ok(ExitCode::SUCCESS);
    };
    let suite = SuiteRow::of(name).ok_or_else(|| unknown(name))?;
    if args.asked.policy().is_none() {
        print(description(suite))?;
        return Ok(ExitCode::SUCCESS);
    }
    let file = jobs_file(suite, &args.asked)?;
    let json = format!("{file:#}");
    match args.output {
        Some(path) => {
            let wrote = std::fs::write(&path, json + "\n");
            wrote.map_err(|err| {
                Refusal::new(format_args!("cannot write `{}`: {err}", path.display()))
            })?
        }
        None => print_json(&json)?,
    }
    eprint!("{}", printable(&text::note(suite, &file)));
    Ok(ExitCode::SUCCESS)
}

/// Returns the jobs file that was asked for, which `eval` accepts.
fn jobs_file(suite: &'static SuiteRow, asked: &Asked) -> Result<Value, Refusal> {
    let file = suite.jobs_file(&asked.request(suite)?);
    let jobs = jobs::file::parse(&file).map_err(Refusal::new)?;
    jobs.iter()
        .try_for_each(|job| rules::check_job(job, false))?;
    Ok(file)
}

fn unknown(found: &str) -> Refusal {
    let hint = hint(found);
    Refusal::new(format_args!(
        "there is no suite `{found}`{hint}; `rrun suite` lists them"
    ))
}

/// Returns the suite with the most similar name as a clause, or nothing.
fn hint(found: &str) -> String {
    most_similar(
        found,
        SuiteRow::all().map(|suite| suite.name.as_str()),
        LIKE_NAME,
    )
    .map(|name| format!(" (did you mean `{name}`?)"))
    .unwrap_or_default()
}

/// Returns the venv of a suite's simulator, as jobs name it.
fn venv(suite: &SuiteRow) -> String {
    match std::env::var("RRUN_SIMULATORS") {
        Ok(folder) if !folder.is_empty() => format!("{folder}/{}", suite.simulator),
        _ => format!(".simulators/{}", suite.simulator),
    }
}

/// Returns whether a folder is a venv that `install.sh` finished.
fn is_installed(venv: &str) -> bool {
    Path::new(venv).join("rrun-pins.txt").is_file()
}

/// Returns the command that installs a suite's simulator into [`venv`], if its installer is there.
fn install_command(suite: &SuiteRow) -> Option<String> {
    let folder = suites(&Node::read().ok()?.executable)?;
    let source = Path::new(IN_SOURCE);
    let is_source = is_same_folder(source, &folder);
    let folder = if is_source { source } else { &folder };
    let command = list::install_command(&format!(".simulators/{}", suite.simulator), folder)?;
    let is_set = std::env::var_os("RRUN_SIMULATORS").is_some_and(|folder| !folder.is_empty());
    Some(match command.strip_prefix("RRUN_SIMULATORS=.simulators ") {
        Some(command) if is_set => command.to_owned(),
        _ => command,
    })
}
