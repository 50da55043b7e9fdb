//! The simulators that run inside `rrun-rank`: one row each, which launcher, memory planner and
//! ranks read, and `rrun list` prints.
//!
//! A new simulator is a file with its row here, a variant of [`Simulator`], and a folder in
//! `runtime/src/env`. The compiler asks for the rest. A simulator in Python needs none of this.

mod table_top;

use std::borrow::Cow;

use crate::settings::SettingRow;

pub use table_top::{Quality, TableTop};

/// What is known about a simulator without building it.
#[derive(Debug)]
pub struct SimulatorRow {
    /// Its environments.
    pub environments: &'static [EnvironmentRow],
    /// The arguments of its environments, beside those of every environment.
    pub arguments: fn() -> &'static [SettingRow],
    /// Names of the cameras that every environment has.
    pub cameras: &'static [&'static str],
}

/// What is known about an environment of a simulator.
#[derive(Debug)]
pub struct EnvironmentRow {
    /// Its name in `arena_env_args.environment`.
    pub name: &'static str,
    /// The task, in one line: the instruction that policies get.
    pub about: &'static str,
    /// Default of `max_episode_steps`.
    pub max_episode_steps: u32,
    /// Default of `success_threshold`, in metres.
    pub success_threshold: f64,
    /// The words of `object`, the default first; without any there is no such argument.
    pub objects: &'static [&'static str],
}

impl SimulatorRow {
    /// Returns the names of its environments.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.environments.iter().map(|environment| environment.name)
    }

    /// Returns the arguments of one of its environments, with its defaults, besides those of every
    /// environment.
    pub fn arguments_of(&self, environment: &EnvironmentRow) -> Vec<SettingRow> {
        let rows = (self.arguments)().iter();
        rows.filter_map(|row| Some(environment.argument(row)?.into_owned()))
            .collect()
    }

    /// Returns the names of all arguments that one of its environments has.
    pub fn fields(&self) -> Vec<&'static str> {
        let rows = (self.arguments)().iter();
        rows.map(|row| row.name.as_str()).collect()
    }
}

impl EnvironmentRow {
    /// Returns an argument of its simulator as this environment has it; `None` if it has none.
    pub(crate) fn argument<'a>(&self, row: &'a SettingRow) -> Option<Cow<'a, SettingRow>> {
        match (row.name.as_str(), self.objects) {
            ("max_episode_steps", _) => Some(Cow::Owned(row.with_default(self.max_episode_steps))),
            ("success_threshold", _) => Some(Cow::Owned(row.with_default(self.success_threshold))),
            ("object", []) => None,
            ("object", words @ [first, ..]) => {
                Some(Cow::Owned(row.with_default(first).one_of(words)))
            }
            _ => Some(Cow::Borrowed(row)),
        }
    }
}

/// A simulator of `rrun-rank`. A `match` on it has an arm for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Simulator {
    /// The table-top tasks, on MuJoCo.
    TableTop,
}

impl Simulator {
    /// All simulators, in the order in which messages name their environments.
    pub const ALL: &[Self] = &[Self::TableTop];

    /// Returns what is known about this simulator.
    pub fn row(self) -> &'static SimulatorRow {
        match self {
            Self::TableTop => &table_top::ROW,
        }
    }

    /// Returns the simulator of an environment; `None` for one in Python, or an unknown one.
    pub fn of(environment: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|simulator| simulator.row().names().any(|name| name == environment))
    }

    /// Returns the environments of all simulators.
    pub fn environments() -> Vec<&'static str> {
        let rows = Self::ALL.iter().map(|simulator| simulator.row());
        rows.flat_map(SimulatorRow::names).collect()
    }
}
