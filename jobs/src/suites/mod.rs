//! The benchmark suites for which `rrun suite` writes jobs files: one row per suite, in
//! `libero.json`, `metaworld.json` and `gym.json`.
//!
//! ```text
//! *.json ─► SuiteRow ─┬─► jobs_file ─► rrun suite NAME --policy TYPE
//!                     ├─► rrun suite, rrun list
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

mod choice;
mod generate;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use generate::Request;

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
    /// what [`generate`] adds for all suites.
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
}

#[cfg(test)]
mod tests;
