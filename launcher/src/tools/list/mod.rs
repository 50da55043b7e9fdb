//! `rrun list`: the environments, policies and suites that a job can name, and an example of each.
//!
//! ```text
//! jobs/src/simulators, environments ─► environment ─┐
//! jobs/src/policies ─────────────────► policy       ├─► catalogue (text), json
//! jobs/suites/*.json, *.yaml ────────► suite ───────┤
//! jobs/src/suites ───────────────────► SuiteRow ────┘
//! ```
//! Arguments and defaults come from the tables that the parsers use or are tested against, and
//! suites from their files.

mod catalogue;
mod environment;
mod json;
pub(super) mod policy;
mod suite;

use std::process::ExitCode;

use crate::tools::list::catalogue::{Catalogue, Listed};
use crate::tools::list::json::ListJson;
pub(super) use crate::tools::list::suite::{IN_SOURCE, command as install_command, is_same_folder};
use crate::tools::{print, print_json};

/// List environments, policies and suites, or describe one of them.
///
/// With a name, prints its arguments with their defaults, and a jobs file to start from:
/// `rrun list pusht`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Environment, policy type, suite or benchmark to describe [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print everything as JSON (rrun/list/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let all = Catalogue::new()?;
    let one = match &args.name {
        Some(name) => Some(Listed::of(name, &all)?),
        None => None,
    };
    if args.json {
        let found = match &one {
            Some(one) => ListJson::one(one),
            None => ListJson::all(&all)?,
        };
        print_json(&serde_json::to_string_pretty(&found).map_err(std::io::Error::from)?)?;
    } else {
        print(one.map_or_else(|| all.text(), |one| one.description()))?;
    }
    Ok(ExitCode::SUCCESS)
}
