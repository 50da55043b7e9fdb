//! The benchmark suites for which `rrun suite` writes jobs files: one row per suite, one file per
//! family.
//!
//! ```text
//! <family> ─► SuiteRow ─┬─► jobs_file ─► rrun suite NAME --policy TYPE
//!                       ├─► rrun suite, rrun list
//!                       └─► Job::suite: name and version of the protocol, in plan.json
//! ```
//! A new suite is a row in the file of its family, and a new family is a file and a line in
//! [`FAMILIES`]. The numbers of a protocol are those of its authors' own evaluation, which `source`
//! names. If one of them changes here, its `version` changes, too.

mod aloha;
mod choice;
mod fetch;
mod generate;
mod libero;
mod metaworld;
mod pusht;
mod seeded;

use serde_json::Value;

pub use choice::{TaskChoice, TaskChoiceError};
pub use generate::Request;

/// A benchmark suite: tasks that are evaluated by one protocol.
#[derive(Debug)]
pub struct SuiteRow {
    /// Name of the suite.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Name of its simulator, as `jobs/suites/simulators/install.sh` has it.
    pub simulator: &'static str,
    /// Names of its tasks, in the authors' order.
    pub tasks: &'static [&'static str],
    /// How each task is evaluated.
    pub protocol: Protocol,
    /// Whether jobs are named by the numbers of the tasks, because their names are sentences.
    is_numbered: bool,
    /// Returns `arena_env_args` of a task, without what [`generate`] adds for all suites.
    environment: fn(&SuiteRow, task: usize, &Numbers) -> Value,
}

/// How the authors of a benchmark evaluate it.
#[derive(Debug)]
pub struct Protocol {
    /// Version of this description of it.
    pub version: &'static str,
    /// Its numbers.
    pub numbers: Numbers,
    /// When an episode is solved, for people.
    pub success: &'static str,
    /// How initial states follow from the seed, for people.
    pub initial_states: &'static str,
    /// Whose evaluation it is, in a few words.
    pub authors: &'static str,
    /// Where they define it.
    pub source: &'static str,
}

/// The numbers of a protocol, which options can replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Episodes of each task.
    pub episodes: u64,
    /// Steps after which an episode ends, without those in which objects settle.
    pub max_episode_steps: u64,
    /// The seed.
    pub seed: u64,
}

/// The families of suites, in the order of the list.
const FAMILIES: &[&[SuiteRow]] = &[
    libero::SUITES,
    metaworld::SUITES,
    aloha::SUITES,
    pusht::SUITES,
    fetch::SUITES,
];

impl SuiteRow {
    /// Returns all suites.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        FAMILIES.iter().copied().flatten()
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
