//! What a job can name: environments of the simulators in `rrun-rank`, the two forms of an environment
//! in Python, and policies.

use jobs::environments::{
    EnvironmentRow, EveryEnvironment, PythonEnvironment, Simulator, is_python_environment,
};
use jobs::policies::{PolicyDescription, PolicyType, Serving};
use jobs::settings::{self, SettingRow};
use serde_json::{Value, json};

use crate::tools::list::entry::{CatalogueEntry, EntrySetting, Kind};

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
