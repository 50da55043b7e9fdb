//! What a job can name: environments of the simulators in `rrun-rank`, the two forms of an environment
//! in Python, and policies; and the benchmarks of `rrun suite`, with the protocols of their
//! authors.

use std::path::Path;

use jobs::count::counted;
use jobs::environments::{
    EnvironmentRow, EveryEnvironment, PythonEnvironment, Simulator, is_python_environment,
};
use jobs::policies::{PolicyDescription, PolicyType, Serving};
use jobs::refusal::Refusal;
use jobs::settings::{self, SettingRow};
use jobs::suites::{Request, SuiteRow};
use serde_json::{Value, json};

use crate::installed::examples;
use crate::tools::list::examples::{is_installed, requirement};
use crate::tools::list::{CatalogueEntry, EntryJob, EntrySetting, Kind, Requirement};

/// Returns all environments, in the order of the list.
pub(super) fn environments() -> Vec<CatalogueEntry> {
    let built_in = Simulator::ALL.iter().flat_map(|simulator| {
        let rows = simulator.row().environments.iter();
        rows.map(|row| built_in(*simulator, row))
    });
    let python = [gym("gym:Pusher-v5"), factory("my_simulator.py:make")];
    built_in.chain(python).collect()
}

/// Returns the environment that a job names.
pub(super) fn environment(name: &str) -> Option<CatalogueEntry> {
    let mut all = environments().into_iter();
    python(name).or_else(|| all.find(|entry| entry.name == name))
}

/// Returns the environment in Python that a job names.
pub(super) fn python(name: &str) -> Option<CatalogueEntry> {
    match name.starts_with("gym:") {
        true => Some(gym(name)),
        false if name.contains(':') && is_python_environment(name) => Some(factory(name)),
        false => None,
    }
}

fn built_in(simulator: Simulator, row: &EnvironmentRow) -> CatalogueEntry {
    let name = row.name;
    let policy = match row.has_expert {
        true => "scripted",
        false => "random_action",
    };
    CatalogueEntry {
        documentation: "docs/evaluate.md".to_owned(),
        settings: arguments(&simulator.row().arguments_of(row)),
        example: job(name, policy, json!({"environment": name, "num_envs": 4})),
        ..named(name, row.about)
    }
}

fn gym(id: &str) -> CatalogueEntry {
    let arguments = json!({"environment": id, "env_kwargs": {"render_mode": "rgb_array"},
                           "success": "terminated", "num_envs": 4});
    in_python(
        "gym",
        "`gym:ID`, any environment of Gymnasium, in Python",
        arguments,
    )
}

fn factory(path: &str) -> CatalogueEntry {
    in_python(
        "factory",
        "`file.py:factory` or `package.module:factory`, your own simulator in Python",
        json!({"environment": path, "max_episode_steps": 200, "num_envs": 4}),
    )
}

fn in_python(name: &str, about: &str, given: Value) -> CatalogueEntry {
    CatalogueEntry {
        documentation: "docs/own_simulator.md".to_owned(),
        settings: arguments(settings::rows::<PythonEnvironment>()),
        example: job(name, "random_action", given),
        ..named(name, about)
    }
}

fn named(name: &str, about: &str) -> CatalogueEntry {
    CatalogueEntry {
        title_of_settings: "Arguments, in `arena_env_args`".to_owned(),
        ..CatalogueEntry::new(Kind::Environment, name, about)
    }
}

/// Returns the arguments of an environment, those of every environment first.
fn arguments(own: &[SettingRow]) -> Vec<EntrySetting> {
    let every = settings::rows::<EveryEnvironment>();
    every.iter().chain(own).map(EntrySetting::new).collect()
}

fn job(name: &str, policy: &str, arguments: Value) -> String {
    let job = json!({"name": name, "arena_env_args": arguments, "policy_type": policy,
                     "num_episodes": 20});
    format!("{:#}", json!({"jobs": [job]}))
}

/// Returns all policies, in the order of the list.
pub(super) fn policies() -> Vec<CatalogueEntry> {
    let rows = PolicyType::ALL.iter().map(|policy| policy.row());
    rows.map(policy).collect()
}

fn policy(row: &PolicyDescription) -> CatalogueEntry {
    let job = row.example.replace('\n', "\n  ");
    CatalogueEntry {
        aliases: row.aliases,
        documentation: format!("docs/{}", row.page),
        is_served: Some(!matches!(row.serving, Serving::Refused(_))),
        title_of_settings: "Settings, in `policy_config_dict`".to_owned(),
        settings: row.settings().iter().map(EntrySetting::new).collect(),
        example: format!("{{\"jobs\": [\n  {job}\n]}}"),
        ..CatalogueEntry::new(Kind::Policy, row.name, row.about)
    }
}

/// The policy of the job that is printed.
const POLICY: &str = "random_action";

/// Returns all suites, in the order of the list; `folder` has the installers of their simulators.
pub(super) fn suites(folder: Option<&Path>) -> Result<Vec<CatalogueEntry>, Refusal> {
    SuiteRow::all().map(|row| suite(row, folder)).collect()
}

fn suite(suite: &'static SuiteRow, folder: Option<&Path>) -> Result<CatalogueEntry, Refusal> {
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
    let first = Request {
        tasks: Some("0".to_owned()),
        policy_type: POLICY.to_owned(),
        num_envs: 1,
        ..Request::default()
    };
    let first = suite.jobs_file(&first, &needed.path)?;
    let command = format!(
        "rrun suite {} --policy {POLICY} --output jobs.json",
        suite.name
    );
    Ok(CatalogueEntry {
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
    })
}

/// Returns the venv of a suite's simulator, as jobs name it.
pub(in crate::tools) fn simulator(suite: &SuiteRow) -> Requirement {
    simulator_in(suite, examples().ok().flatten().as_deref())
}

fn simulator_in(suite: &SuiteRow, folder: Option<&Path>) -> Requirement {
    let name = &suite.simulator;
    let folder = folder.unwrap_or(Path::new(""));
    let mut needed = requirement(&format!(".simulators/{name}"), folder);
    let given = std::env::var("RRUN_SIMULATORS").ok();
    if let Some(root) = given.filter(|root| !root.is_empty()) {
        needed.path = format!("{root}/{name}");
        needed.is_there = is_installed(&needed.path);
        // The installer sees the variable, too.
        let command = needed.command.take();
        needed.command = command.map(|text| text.replace("RRUN_SIMULATORS=.simulators ", ""));
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_without_an_expert_is_shown_with_another_policy() {
        let row = |has_expert| EnvironmentRow {
            has_expert,
            ..Simulator::TableTop.row().environments[0]
        };
        for (has_expert, policy) in [(true, "scripted"), (false, "random_action")] {
            let job = built_in(Simulator::TableTop, &row(has_expert)).example;
            assert!(
                job.contains(&format!("\"policy_type\": \"{policy}\"")),
                "{job}"
            );
        }
    }
}
