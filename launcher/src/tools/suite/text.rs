//! What `rrun suite` prints beside jobs files.

use std::fmt::Write as _;

use jobs::count::counted;
use jobs::suites::SuiteRow;
use jobs::table::Table;
use serde_json::Value;

use crate::tools::suite::{install_command, is_installed, venv};

/// Returns the table of all suites.
pub(super) fn list() -> String {
    let rows: Vec<[String; 8]> = SuiteRow::all().map(row).collect();
    let head = [
        "Suite",
        "Tasks",
        "Episodes",
        "Steps",
        "Seed",
        "Protocol",
        "Simulator",
        "Installed",
    ];
    let mut text = Table::new(head, rows).grid();
    text.push_str(
        "\nEpisodes, at most that many steps long, are those of each task.\n\
         `rrun suite NAME` describes one; `rrun suite NAME --policy TYPE` prints its jobs file.",
    );
    text
}

fn row(suite: &'static SuiteRow) -> [String; 8] {
    [
        suite.name.clone(),
        suite.tasks.len().to_string(),
        suite.num_episodes.to_string(),
        suite.max_episode_steps.to_string(),
        suite.seed.to_string(),
        format!("{}, {}", suite.protocol, suite.authors),
        suite.simulator.clone(),
        if is_installed(&venv(suite)) {
            "yes"
        } else {
            "no"
        }
        .to_owned(),
    ]
}

/// Returns the protocol and the tasks of a suite.
pub(in crate::tools) fn description(suite: &'static SuiteRow) -> String {
    let mut text = format!("{}: {}\n\n", suite.name, suite.about);
    let facts = [
        ("protocol", format!("{}, {}", suite.protocol, suite.authors)),
        (
            "episodes",
            format!(
                "{} of each of {}, {} at most, seed {}",
                suite.num_episodes,
                counted(suite.tasks.len(), "task"),
                counted(suite.max_episode_steps, "step"),
                suite.seed
            ),
        ),
        ("begin", suite.initial_states.clone()),
        ("success", suite.success.clone()),
        ("source", suite.source.clone()),
        ("simulator", simulator(suite)),
    ];
    for (name, fact) in facts {
        let _ = writeln!(text, "{name:<10} {fact}");
    }
    let rows: Vec<[String; 3]> = suite
        .tasks
        .iter()
        .enumerate()
        .map(|(task, name)| [task.to_string(), name.clone(), suite.job_name(task)])
        .collect();
    let _ = write!(
        text,
        "\n{}\nA jobs file: rrun suite {} --policy random_action --output jobs.json",
        Table::new(["Task", "Name", "Job Name"], rows).grid(),
        suite.name
    );
    text
}

/// Returns where the simulator of a suite is, or how to install it.
fn simulator(suite: &SuiteRow) -> String {
    let venv = venv(suite);
    if is_installed(&venv) {
        return format!("{}, in {venv}", suite.simulator);
    }
    match install_command(suite) {
        Some(command) => format!("{}, not in {venv}: {command}", suite.simulator),
        None => format!("{}, not in {venv}", suite.simulator),
    }
}

/// Returns what is said about a jobs file that was written.
pub(super) fn note(suite: &'static SuiteRow, file: &Value) -> String {
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
        let _ = writeln!(
            text,
            "rrun: not those of the protocol: {}",
            names.join(", ")
        );
    }
    if first["arena_env_args"]["python"] == venv(suite) && !is_installed(&venv(suite)) {
        let _ = writeln!(text, "rrun: the simulator is missing: {}", simulator(suite));
    }
    text
}
