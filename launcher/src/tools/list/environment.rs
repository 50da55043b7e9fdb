//! The environments: those of the simulators in `rrun-rank`, and the two forms of an environment in
//! Python.

use std::fmt::Write as _;

use jobs::environments::{EveryEnvironment, PythonEnvironment, is_python_environment};
use jobs::settings::{self, SettingRow};
use jobs::simulators::{EnvironmentRow, Simulator};
use jobs::table::Table;
use serde_json::{Map, Value};

use crate::tools::list::policy::{default, values};

/// Name in the list of the environments of Gymnasium.
const GYM: &str = "gym";

/// Name in the list of the environments that a factory makes.
const FACTORY: &str = "factory";

/// An environment that is listed.
#[derive(Debug)]
pub(super) enum ListedEnvironment {
    /// An environment of a simulator in `rrun-rank`.
    BuiltIn(Simulator, &'static EnvironmentRow),
    /// `gym:ID`, with the id of the example.
    Gym(String),
    /// `file.py:factory` or `package.module:factory`, with the name of the example.
    Factory(String),
}

impl ListedEnvironment {
    /// Returns all environments, in the order of the list.
    pub(super) fn all() -> Vec<Self> {
        let built_in = Simulator::ALL.iter().flat_map(|simulator| {
            let rows = simulator.row().environments.iter();
            rows.map(|row| Self::BuiltIn(*simulator, row))
        });
        built_in.chain([Self::gym(), Self::factory()]).collect()
    }

    fn gym() -> Self {
        Self::Gym("gym:Pusher-v5".to_owned())
    }

    fn factory() -> Self {
        Self::Factory("my_simulator.py:make".to_owned())
    }

    /// Returns the environment of a name in the list, or of a name that a job may have.
    pub(super) fn of(name: &str) -> Option<Self> {
        let listed = Self::all()
            .into_iter()
            .find(|environment| environment.name() == name);
        match listed {
            None if name.starts_with("gym:") => Some(Self::Gym(name.to_owned())),
            None if name.contains(':') && is_python_environment(name) => {
                Some(Self::Factory(name.to_owned()))
            }
            listed => listed,
        }
    }

    /// Returns the name in the list.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::BuiltIn(_, row) => row.name,
            Self::Gym(_) => GYM,
            Self::Factory(_) => FACTORY,
        }
    }

    /// Returns what it is, in one line.
    pub(super) fn about(&self) -> String {
        match self {
            Self::BuiltIn(_, row) => row.about.to_owned(),
            Self::Gym(_) => "`gym:ID`, any environment of Gymnasium, in Python".to_owned(),
            Self::Factory(_) => {
                "`file.py:factory` or `package.module:factory`, your own simulator in Python"
                    .to_owned()
            }
        }
    }

    /// Returns its page in the documentation.
    pub(super) fn page(&self) -> &'static str {
        match self {
            Self::BuiltIn(..) => "docs/evaluate.md",
            Self::Gym(_) | Self::Factory(_) => "docs/own_simulator.md",
        }
    }

    /// Returns its arguments, those of every environment first.
    pub(super) fn arguments(&self) -> Vec<SettingRow> {
        let own = match self {
            Self::BuiltIn(simulator, row) => simulator.row().arguments_of(row),
            Self::Gym(_) | Self::Factory(_) => settings::rows::<PythonEnvironment>().to_vec(),
        };
        [settings::rows::<EveryEnvironment>().to_vec(), own].concat()
    }

    /// Returns a jobs file with one job.
    pub(super) fn example(&self) -> String {
        let (job, arguments, policy) = match self {
            Self::BuiltIn(_, row) => (
                row.name,
                format!(r#""environment": "{}""#, row.name),
                "scripted",
            ),
            Self::Gym(name) => (
                GYM,
                format!(
                    r#""environment": {}, "env_kwargs": {{"render_mode": "rgb_array"}},
    "success": "terminated""#,
                    Value::from(name.as_str())
                ),
                "random_action",
            ),
            Self::Factory(name) => (
                FACTORY,
                format!(
                    r#""environment": {}, "max_episode_steps": 200"#,
                    Value::from(name.as_str())
                ),
                "random_action",
            ),
        };
        format!(
            "{{\"jobs\": [\n  {{\"name\": \"{job}\",\n   \"arena_env_args\": {{{arguments}, \
             \"num_envs\": 4}},\n   \"policy_type\": \"{policy}\", \"num_episodes\": 20}}\n]}}"
        )
    }

    pub(super) fn description(&self) -> String {
        let table = arguments(&self.arguments(), None);
        format!(
            "{}: {}\n\nArguments, in `arena_env_args`:\n\n{table}\nA jobs file:\n\n{}\n\n\
             Documentation: {}",
            self.name(),
            self.about(),
            self.example(),
            self.page()
        )
    }
}

/// Returns the table of arguments; `given` are the values that a job has.
pub(super) fn arguments(arguments: &[SettingRow], given: Option<&Map<String, Value>>) -> String {
    let rows: Vec<[String; 4]> = arguments
        .iter()
        .filter(|argument| given.is_none_or(|given| given.contains_key(&argument.name)))
        .map(|argument| {
            let value = match given.and_then(|given| given.get(&argument.name)) {
                Some(value) => value.to_string(),
                None => values(argument),
            };
            let about = argument.about.replace('`', "");
            [argument.name.clone(), value, default(argument), about]
        })
        .collect();
    let mut text = String::new();
    let head = match given {
        Some(_) => ["Argument", "Here", "Default", "Meaning"],
        None => ["Argument", "Value", "Default", "Meaning"],
    };
    let _ = write!(text, "{}", Table::new(head, rows).grid());
    text
}
