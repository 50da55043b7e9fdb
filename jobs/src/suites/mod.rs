//! The benchmark suites for which `rrun suite` writes jobs files: one row per suite, in
//! `libero.json`, `metaworld.json` and `gym.json`.
//!
//! ```text
//! *.json ─► SuiteRow ─┬─► jobs_file ─► rrun suite NAME --policy TYPE
//!                     ├─► rrun list
//!                     └─► Job::suite: name and version of the protocol, in plan.json
//! ```
//! A new suite is a row of its family, and a new family has what its suites have in common. The
//! numbers of a protocol are those of its authors' own evaluation, which `source` names. If one of
//! them changes there, its `protocol` changes, too.
//!
//! * **LIBERO** (Liu et al. 2023), **LIBERO-PRO** (Zhou et al. 2025): Episodes, step limits, the ten
//!   steps in which objects settle, the seed and the cameras of 256 × 256 pixels are those of
//!   OpenVLA's evaluation, which openpi repeats. LIBERO's own configuration
//!   (`libero/configs/eval/default.yaml`) has 20 episodes of 600 steps, and few results use it.
//!   Tasks are in the order of the benchmark with `task_order_index` 0. Those of LIBERO-PRO have the
//!   names of those that they were made from; what is to be done is said in their files only.
//! * **Meta-World** (Yu et al. 2019): The protocol is that of `evaluation` in metaworld 3.1.1. There,
//!   each episode draws one of the benchmark's 50 goals; here, episode i has goal i, so that each
//!   goal is used once. ML45's `metalearning_evaluation` lets a policy adapt in ten episodes first,
//!   which a jobs file cannot express: these suites evaluate policies as they are.
//! * **ALOHA** (Zhao et al. 2023) and **PushT** (Chi et al. 2023), as LeRobot evaluates them. 50
//!   episodes of 400 steps are also ACT's own numbers (`imitate_episodes.py`, `constants.py`).
//! * **Fetch** (Plappert et al. 2018) in gymnasium-robotics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::experiment::Change;
use crate::job::Suite;
use crate::numbers::Numbers;
use crate::policies::{self, PolicyType};
use crate::refusal::Refusal;
use crate::tree::overlay;

/// A benchmark suite: tasks that are evaluated by one protocol. It serializes to what people want to
/// know of it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SuiteRow {
    /// Name of the suite.
    pub name: String,
    /// What it is, in one line.
    pub about: String,
    /// Name of its simulator, as `jobs/suites/simulators/install.sh` has it.
    pub simulator: String,
    /// Names of its tasks, in the authors' order.
    pub tasks: Vec<String>,
    /// Version of the protocol as it is described here.
    pub protocol: String,
    /// Episodes of each task.
    pub num_episodes: u64,
    /// Steps after which an episode ends, without those in which objects settle.
    pub max_episode_steps: u64,
    /// The seed.
    pub seed: u64,
    /// When an episode is solved, for people.
    pub success: String,
    /// How initial states follow from the seed, for people.
    pub initial_states: String,
    /// Where the authors define the protocol.
    pub source: String,
    /// Whose evaluation it is, in a few words.
    #[serde(skip_serializing)]
    pub authors: String,
    /// Whether jobs are named by the numbers of the tasks, because their names are sentences.
    #[serde(skip_serializing, default)]
    is_numbered: bool,
    /// `arena_env_args` of a task, with names in braces for what depends on the task, and without
    /// what [`SuiteRow::jobs_file`] adds for all suites.
    #[serde(skip_serializing)]
    environment: Value,
    /// What further names in braces stand for.
    #[serde(skip_serializing, default)]
    values: Map<String, Value>,
}

/// A file of suites.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    families: Vec<Family>,
    /// Lists of tasks by the names that rows have for them.
    tasks: BTreeMap<String, Value>,
}

/// Suites that differ in few fields.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Family {
    common: Map<String, Value>,
    suites: Vec<Map<String, Value>>,
}

/// All suites, in the order of the list.
static SUITES: LazyLock<Vec<SuiteRow>> = LazyLock::new(|| {
    let files = [
        include_str!("libero.json"),
        include_str!("metaworld.json"),
        include_str!("gym.json"),
    ];
    files.into_iter().flat_map(rows).collect()
});

fn rows(file: &str) -> Vec<SuiteRow> {
    let File { families, tasks } = serde_json::from_str(file).expect("a test reads all files");
    let mut rows = Vec::new();
    for Family { common, suites } in families {
        for mut suite in suites {
            if let Some(list) = suite.get("tasks").and_then(Value::as_str) {
                suite["tasks"] = tasks[list].clone();
            }
            let mut row = common.clone();
            row.extend(suite);
            rows.push(serde_json::from_value(row.into()).expect("a test reads all rows"));
        }
    }
    rows
}

impl SuiteRow {
    /// Returns all suites.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        SUITES.iter()
    }

    /// Returns the suite of a name.
    pub fn of(name: &str) -> Option<&'static Self> {
        Self::all().find(|suite| suite.name == name)
    }

    /// Returns the name of a task's job.
    pub fn job_name(&self, task: usize) -> String {
        if self.is_numbered {
            format!("{}_{task}", self.name)
        } else {
            format!("{}_{}", self.name, self.tasks[task])
        }
    }

    /// Returns the numbers of all tasks.
    fn all_tasks(&self) -> Vec<usize> {
        (0..self.tasks.len()).collect()
    }

    /// Returns the numbers of some tasks, ascending, given as numbers, ranges and names that are
    /// separated by commas.
    /// Refuses the first one that the suite does not have.
    fn some_tasks(&self, text: &str) -> Result<Vec<usize>, Refusal> {
        let (mut chosen, name) = (BTreeSet::new(), &self.name);
        for word in text.split(',').map(str::trim) {
            if let Some(task) = self.tasks.iter().position(|name| name == word) {
                chosen.insert(task);
                continue;
            }
            let last = self.tasks.len() - 1;
            let numbers = word.parse::<Numbers>().ok();
            if let Some(numbers) = numbers.filter(|numbers| numbers.last() <= last as u64) {
                chosen.extend(numbers.iter().map(|number| number as usize));
                continue;
            }
            let is_number = |letter: char| letter.is_ascii_digit() || letter == '-';
            if word.is_empty() || !word.chars().all(is_number) {
                let known: Vec<_> = self.tasks.iter().map(String::as_str).collect();
                return Err(Refusal::unknown(
                    format_args!("`{name}`"),
                    "task",
                    word,
                    &known,
                ));
            }
            return Err(Refusal::new(format_args!(
                "`{name}` has no task {word}: expected numbers or ranges from 0 to {last}"
            )));
        }
        Ok(chosen.into_iter().collect())
    }
}

/// What to evaluate on a suite, and what replaces its protocol: options of `rrun suite`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Request {
    /// Policy type of all jobs; `rrun list` lists them
    #[arg(long = "policy", value_name = "TYPE")]
    pub policy_type: String,

    /// A setting of the policy, e.g. model_path=models/mine; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = Change::setting)]
    pub settings: Vec<Change>,

    /// Tasks by number, range or name, e.g. 0-4,7 [default: all]
    #[arg(long, value_name = "LIST")]
    pub tasks: Option<String>,

    /// Copies of the environment in each rank
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    pub num_envs: u64,

    /// Episodes of each task [default: those of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub episodes: Option<u64>,

    /// Steps after which an episode ends [default: those of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub max_episode_steps: Option<u64>,

    /// Seed [default: that of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=0x7fff_ffff))]
    pub seed: Option<u64>,

    /// Interpreter of the simulator, or the folder of its venv [default: .simulators/NAME]
    #[arg(long, value_name = "PATH")]
    pub python: Option<String>,

    /// Mapping of cameras, states and actions to the names of the policy [default: the suite's]
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<String>,
}

impl Request {
    /// Returns the `policy_config_dict` of all jobs.
    fn policy_config(&self) -> Result<Map<String, Value>, Refusal> {
        let mut config = Map::new();
        for setting in &self.settings {
            if let Value::Object(setting) = setting.tree() {
                overlay(&mut config, setting);
            }
        }
        if let Some(policy) = PolicyType::of(&self.policy_type) {
            policies::check(policy, &config).map_err(|err| {
                let policy = policy.name();
                Refusal::new(format_args!(
                    "policy `{policy}`: {err}; use --set KEY=VALUE"
                ))
            })?;
        }
        Ok(config)
    }
}

impl SuiteRow {
    /// Returns the jobs file that evaluates a policy on this suite. `simulator` is the interpreter
    /// of its simulator, unless the request names another one.
    ///
    /// # Errors
    /// Refuses tasks that the suite does not have, and settings that the policy does not have.
    pub fn jobs_file(&self, request: &Request, simulator: &str) -> Result<Value, Refusal> {
        let tasks = match &request.tasks {
            Some(list) => self.some_tasks(list)?,
            None => self.all_tasks(),
        };
        let label = Suite {
            name: self.name.clone(),
            protocol: self.protocol.clone(),
            overrides: self.overrides(&tasks, request),
        };
        let policy_config = request.policy_config()?;
        let [episodes, steps, seed] = self
            .numbers(request)
            .map(|(_, own, given)| given.unwrap_or(own));
        let job = |task: usize| {
            let mut environment = self.environment_of(task, steps, seed);
            environment["python"] = request.python.as_deref().unwrap_or(simulator).into();
            if let Some(mapping) = &request.mapping {
                environment["mapping"] = mapping.clone().into();
            }
            environment["max_episode_steps"] = steps.into();
            environment["pass_episode"] = true.into();
            environment["num_envs"] = request.num_envs.into();
            json!({
                "name": self.job_name(task),
                "suite": label,
                "arena_env_args": environment,
                "policy_type": request.policy_type,
                "policy_config_dict": policy_config,
                "num_episodes": episodes,
                "seed": seed,
            })
        };
        let jobs: Vec<Value> = tasks.into_iter().map(job).collect();
        Ok(json!({"jobs": jobs}))
    }

    /// Returns the `arena_env_args` of a task, as the row has them.
    fn environment_of(&self, task: usize, steps: u64, seed: u64) -> Value {
        let mut values = self.values.clone();
        values.extend([
            ("{suite}".to_owned(), self.name.clone().into()),
            ("{task}".to_owned(), self.tasks[task].clone().into()),
            ("{number}".to_owned(), task.into()),
            ("{seed}".to_owned(), seed.into()),
            ("{steps}".to_owned(), steps.into()),
        ]);
        let mut environment = self.environment.clone();
        fill(&mut environment, &values);
        environment
    }

    /// Returns the numbers of the protocol by the fields of a job, each with that of the request.
    fn numbers(&self, request: &Request) -> [(&'static str, u64, Option<u64>); 3] {
        let steps = (self.max_episode_steps, request.max_episode_steps);
        [
            ("num_episodes", self.num_episodes, request.episodes),
            ("max_episode_steps", steps.0, steps.1),
            ("seed", self.seed, request.seed),
        ]
    }

    /// Returns the names of what differs from the protocol.
    fn overrides(&self, tasks: &[usize], request: &Request) -> Vec<String> {
        let tasks = (tasks != self.all_tasks()).then_some("tasks");
        let numbers = self.numbers(request).into_iter();
        let others = numbers.filter(|(_, own, given)| given.is_some_and(|given| given != *own));
        let names = tasks.into_iter().chain(others.map(|(name, ..)| name));
        names.map(str::to_owned).collect()
    }
}

/// Replaces the names in braces: a text that is one name by its value of any kind, and names within
/// a text by texts.
fn fill(value: &mut Value, values: &Map<String, Value>) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|field| fill(field, values)),
        Value::String(text) => {
            if let Some(whole) = values.get(text.as_str()) {
                *value = whole.clone();
                return;
            }
            for (name, part) in values {
                *text = text.replace(name, part.as_str().unwrap_or(name));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
