//! The benchmarks of `rrun suite`, with the protocols of their authors.

use std::path::Path;

use jobs::count::counted;
use jobs::suites::{Request, SuiteRow};
use serde_json::Map;

use crate::tools::list::entry::{CatalogueEntry, EntryJob, Kind, Requirement};
use crate::tools::list::examples::{self, is_installed, requirement};

/// The policy of the job that is printed.
const POLICY: &str = "random_action";

/// Returns all suites, in the order of the list; `folder` has the installers of their simulators.
pub(super) fn all(folder: Option<&Path>) -> Vec<CatalogueEntry> {
    SuiteRow::all().map(|suite| entry(suite, folder)).collect()
}

fn entry(suite: &'static SuiteRow, folder: Option<&Path>) -> CatalogueEntry {
    let needed = simulator_in(suite, folder);
    let numbers = format!(
        "{} of each of {}, {} at most, seed {}",
        suite.num_episodes,
        counted(suite.tasks.len(), "task"),
        counted(suite.max_episode_steps, "step"),
        suite.seed
    );
    let jobs = suite.tasks.iter().enumerate().map(|(task, name)| EntryJob {
        name: suite.job_name(task),
        task: format!("{task}: {name}"),
        runs: counted(suite.num_episodes, "episode"),
    });
    let first = suite.jobs_file(&Request {
        tasks: vec![0],
        policy_type: POLICY.to_owned(),
        policy_config: Map::new(),
        num_envs: 1,
        python: needed.path.clone(),
        mapping: None,
        episodes: None,
        max_episode_steps: None,
        seed: None,
    });
    let command = format!(
        "rrun suite {} --policy {POLICY} --output jobs.json",
        suite.name
    );
    CatalogueEntry {
        documentation: "docs/suites.md".to_owned(),
        facts: vec![
            ("protocol", format!("{}, {}", suite.protocol, suite.authors)),
            ("episodes", numbers),
            ("begin", suite.initial_states.clone()),
            ("success", suite.success.clone()),
            ("source", suite.source.clone()),
            (
                "simulator",
                format!("{}, in {}", suite.simulator, needed.path),
            ),
        ],
        protocol: Some(suite),
        jobs: jobs.collect(),
        requirements: vec![needed],
        command: Some(command),
        example: format!("{first:#}"),
        ..CatalogueEntry::new(Kind::Suite, &suite.name, &suite.about)
    }
}

/// Returns the venv of a suite's simulator, as jobs name it.
pub(in crate::tools) fn simulator(suite: &SuiteRow) -> Requirement {
    simulator_in(suite, examples::folder().ok().flatten().as_deref())
}

fn simulator_in(suite: &SuiteRow, folder: Option<&Path>) -> Requirement {
    let usual = format!(".simulators/{}", suite.simulator);
    let needed = requirement(&usual, folder.unwrap_or(Path::new("")));
    match std::env::var("RRUN_SIMULATORS") {
        Ok(folder) if !folder.is_empty() => {
            let path = format!("{folder}/{}", suite.simulator);
            let command = needed.command.map(|command| {
                let own = command.strip_prefix("RRUN_SIMULATORS=.simulators ");
                own.map_or(command.clone(), str::to_owned)
            });
            Requirement {
                is_there: is_installed(&path),
                path,
                command,
            }
        }
        _ => needed,
    }
}
