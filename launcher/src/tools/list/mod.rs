//! `rrun list`: what a job can name, the jobs files that come with `rrun`, and the benchmarks for which
//! `rrun suite` writes them.
//!
//! ```text
//! jobs/src/environments ─────────────► environments ─┐
//! jobs/src/policies ─────────────────► policies      ├─► CatalogueEntry ─► text, JSON
//! jobs/suites/*.json, *.yaml ────────► examples ─────┤
//! jobs/src/suites ───────────────────► suites ───────┘
//! ```
//! Arguments and defaults come from the tables that the parsers use or are tested against, and examples
//! from their files.

mod entry;
mod examples;
mod named;
mod suites;

use std::io;
use std::process::ExitCode;

use jobs::refusal::{Refusal, meant};
use serde_json::json;

use crate::tools::list::entry::{CatalogueEntry, Kind};
pub(super) use crate::tools::list::suites::simulator;
use crate::tools::{print, print_json};

/// Schema of the output of `--json`.
const SCHEMA: &str = "rrun/list/1";

/// List environments, policies, examples and suites, or describe one of them.
///
/// With a name, prints its settings with their defaults, and a jobs file to start from: `rrun list
/// pusht`.
#[derive(Debug, clap::Args)]
pub(super) struct ListArgs {
    /// Environment, policy type, example or suite to describe [default: list all]
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Print everything as JSON (rrun/list/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let all = catalogue()?;
    let entries = match &args.name {
        Some(name) => vec![find(name, all)?],
        None => all,
    };
    if args.json {
        let found = json!({"schema": SCHEMA, "entries": entries});
        print_json(&format!("{found:#}"))?;
    } else if args.name.is_some() {
        print(entries[0].text())?;
    } else {
        print(overview(&entries))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns everything that there is, in the order of the list.
fn catalogue() -> io::Result<Vec<CatalogueEntry>> {
    let folder = examples::folder()?;
    let mut all = [named::environments(), named::policies()].concat();
    if let Some(folder) = &folder {
        all.extend(examples::all(folder)?);
    }
    all.extend(suites::all(folder.as_deref()));
    Ok(all)
}

/// Returns what a name means; it may also be the name that a job has for an environment in Python.
fn find(name: &str, all: Vec<CatalogueEntry>) -> Result<CatalogueEntry, Refusal> {
    if let Some(python) = named::python(name) {
        return Ok(python);
    }
    let names = all.iter().flat_map(CatalogueEntry::names);
    let hint = meant(name, names);
    let found = all
        .into_iter()
        .find(|entry| entry.names().any(|one| one == name));
    found.ok_or_else(|| {
        Refusal::new(format_args!(
            "there is no environment, policy, example or suite `{name}`{hint}; `rrun list` prints all \
             of them"
        ))
    })
}

/// Returns one line for each entry, by kind.
fn overview(all: &[CatalogueEntry]) -> String {
    let mut text = String::new();
    for kind in Kind::ALL {
        let entries: Vec<_> = all.iter().filter(|entry| entry.kind == kind).collect();
        let width = entries.iter().map(|entry| entry.name.len()).max();
        text += &format!("{}:\n", kind.title());
        for CatalogueEntry { name, about, .. } in &entries {
            text += &format!("    {name:<0$}  {about}\n", width.unwrap_or(0));
        }
        if entries.is_empty() {
            text += "    none is installed\n";
        }
        text.push('\n');
    }
    text + "`rrun list NAME` prints settings, defaults and a job to paste: `rrun list reach`."
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Returns everything in the source of this crate.
    fn all() -> Vec<CatalogueEntry> {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../jobs/suites"));
        let mut all = [named::environments(), named::policies()].concat();
        all.extend(examples::all(folder).unwrap());
        all.extend(suites::all(Some(folder)));
        all
    }

    #[test]
    fn a_name_means_one_thing() {
        let (all, mut names) = (all(), BTreeSet::new());
        for name in all.iter().flat_map(CatalogueEntry::names) {
            assert!(names.insert(name), "{name} means two things");
            let found = find(name, all.clone()).unwrap();
            assert!(found.names().any(|one| one == name), "{name}");
        }
        for name in ["reach", "gym", "scripted", "pusht", "behavior", "libero_10"] {
            assert!(names.contains(name), "{name}");
        }
    }

    #[test]
    fn a_misspelt_name_suggests_the_nearest() {
        let text = |name: &str| find(name, all()).unwrap_err().to_string();
        let unknown = "there is no environment, policy, example or suite ";
        let all_of_them = "; `rrun list` prints all of them";
        assert_eq!(
            text("puhst"),
            format!("{unknown}`puhst` (did you mean `pusht`?){all_of_them}")
        );
        assert_eq!(text("xyz"), format!("{unknown}`xyz`{all_of_them}"));
    }

    #[test]
    fn every_thing_has_one_line_in_the_list() {
        let all = all();
        let text = overview(&all);
        for CatalogueEntry { name, .. } in &all {
            let lines = text.lines().filter(|line| {
                line.starts_with("    ") && line.split_whitespace().next() == Some(name)
            });
            assert_eq!(lines.count(), 1, "{name}: {text}");
        }
    }

    #[test]
    fn without_examples_the_rest_is_listed() {
        let text = overview(&named::policies());
        assert!(
            text.contains("none is installed") && text.contains("scripted"),
            "{text}"
        );
    }
}
