//! The simulators that run inside `rrun-rank`: one row each, which launcher, memory planner and
//! ranks read, and `rrun list` prints.
//!
//! A new simulator is a file with its row here, a line in [`Simulator`], and a folder in
//! `runtime/src/env`. The compiler asks for the rest. A simulator in Python needs none of this.

mod table_top;

use crate::policies::Setting;

/// What is known about a simulator without building it.
#[derive(Debug)]
pub struct SimulatorRow {
    /// Its environments.
    pub environments: &'static [EnvironmentRow],
    /// The arguments that all its environments have, with the same values and defaults.
    pub arguments: &'static [Setting],
    /// Names of the cameras that every environment has.
    pub cameras: &'static [&'static str],
    /// GPU memory of one environment that neither the job declares nor a probe has measured.
    pub memory: SimulatorMemory,
}

/// What is known about an environment of a simulator.
#[derive(Debug)]
pub struct EnvironmentRow {
    /// Its name in `arena_env_args.environment`.
    pub name: &'static str,
    /// The task, in one line: the instruction that policies get.
    pub about: &'static str,
    /// The arguments whose values or defaults depend on the environment.
    pub arguments: &'static [Setting],
}

impl SimulatorRow {
    /// Returns the names of its environments.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.environments.iter().map(|environment| environment.name)
    }

    /// Returns the arguments of one of its environments, besides those of every environment.
    pub fn arguments_of(
        &self,
        environment: &'static EnvironmentRow,
    ) -> impl Iterator<Item = &'static Setting> {
        environment.arguments.iter().chain(self.arguments)
    }

    /// Returns the names of all arguments that one of its environments has, each once.
    pub fn fields(&self) -> Vec<&'static str> {
        let own = self.environments.iter().flat_map(|row| row.arguments);
        let mut names: Vec<&'static str> = own
            .chain(self.arguments)
            .map(|setting| setting.name)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The GPU memory of one environment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SimulatorMemory {
    /// It depends on the scene and the size of its images, so it has to be measured.
    Unknown,
    /// About this many GiB.
    Gib(f64),
}

/// Makes the enum of all simulators, each with its row.
macro_rules! simulators {
    ($($(#[$about:meta])* $simulator:ident => $row:path,)+) => {
        /// A simulator of `rrun-rank`. A `match` on it has an arm for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Simulator {
            $($(#[$about])* $simulator,)+
        }

        impl Simulator {
            /// All simulators, in the order in which messages name their environments.
            pub const ALL: &[Self] = &[$(Self::$simulator,)+];

            /// Returns what is known about this simulator.
            pub fn row(self) -> &'static SimulatorRow {
                match self {
                    $(Self::$simulator => &$row,)+
                }
            }
        }
    };
}

simulators! {
    /// The table-top tasks, on MuJoCo.
    TableTop => table_top::ROW,
}

impl Simulator {
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
