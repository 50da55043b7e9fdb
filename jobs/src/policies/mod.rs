//! The policies of `rrun-rank`: one row each, which launcher, memory planner, ranks and
//! documentation read.
//!
//! ```text
//! <policy>.rs ─► row of a PolicyType ─┬─► rules, rlinf, identity     names, aliases, identity of a job
//!                                     ├─► check, SettingsReader      wrong and missing settings
//!                                     ├─► launcher/src/plan/missing  files that have to exist
//!                                     ├─► jobs/fit/src/memory        GPU memory
//!                                     └─► runtime/src/policy         a constructor for each
//! ```
//! A new policy is a file with its row here, a line in [`PolicyType`], and a folder in
//! `runtime/src/policy`. The compiler asks for the rest.

mod baselines;
mod exported;
mod gr00t;
mod gr00t_remote;
pub mod lerobot;
mod openai_agent;
mod pi0_remote;
mod python;
mod reader;
mod remote;
mod setting;
mod torchscript;
mod vla_eval_remote;
mod xpolicylab_remote;

use serde_json::{Map, Value};

pub use python::DECLARED_MEMORY;
pub use reader::{SettingError, SettingsReader, read_yaml};
pub use setting::{FactoryName, PathTo, Setting, ValueKind};

/// The setting with the path of Arena's YAML file, which has settings too.
pub const YAML: &str = "policy_config_yaml_path";

/// Fields that Arena gives to every policy: the device is chosen for the rank, the number of
/// environments is read from the job.
const OF_EVERY_POLICY: &[Setting] = &[
    Setting::unused("policy_device", "the device is that of the rank").of_place(),
    Setting::unused("policy_device_id", "the device is that of the rank").of_place(),
    Setting::unused("num_envs", "the number is that of the job").of_place(),
];

/// What is known about a policy without making it.
#[derive(Debug)]
pub struct PolicyDescription {
    /// Its name, the `policy_type` of a job.
    pub name: &'static str,
    /// Other names, those of Isaac Lab Arena.
    pub aliases: &'static [&'static str],
    /// What it does, in one line.
    pub about: &'static str,
    /// Its page in `docs/`.
    pub page: &'static str,
    /// A job with this policy, as JSON: `rrun policies` shows it, and a test plans it.
    pub example: &'static str,
    /// Its settings, in groups: those of its own, and those that it shares with other policies.
    pub settings: &'static [&'static [Setting]],
    /// How its memory on the GPU of a rank is estimated.
    pub memory: MemoryRule,
    /// Whether it has a checkpoint, which `rollout.model` of a configuration means.
    pub has_checkpoint: bool,
    /// Whether it has a number of episodes of its own, so that a job may lack a length.
    pub has_length: bool,
    /// How `rrun serve` offers it.
    pub serving: Serving,
    /// Whether another process runs the inference. It is then best to send all rows in one
    /// inference, even if this rank's device is a CPU.
    pub is_remote: bool,
}

/// How the memory of a policy on the GPU of its rank is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryRule {
    /// It takes none: it computes on the CPU, or elsewhere.
    Nothing,
    /// From the headers of a GR00T checkpoint and the widths of its network; from the sizes of its
    /// files if they cannot be read.
    Gr00t,
    /// From the sizes of the files that the setting `model_path` names.
    Files,
    /// What the setting [`DECLARED_MEMORY`] says, if the job has it.
    Declared,
}

/// How `rrun serve` offers a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// Its checkpoint names what clients send and receive. With an interface, it acts for that.
    OwnKeys,
    /// It acts for the cameras, states and actions of an interface, which the user has to name.
    Interface,
    /// It has no use for clients, for this reason.
    Refused(&'static str),
}

/// Makes the enum of all policies, each with its row.
macro_rules! policy_types {
    ($($(#[$about:meta])* $policy:ident => $row:path,)+) => {
        /// A policy of `rrun-rank`. A `match` on it has an arm for each.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum PolicyType {
            $($(#[$about])* $policy,)+
        }

        impl PolicyType {
            /// All policies, in the order in which messages name them.
            pub const ALL: &[Self] = &[$(Self::$policy,)+];

            /// Returns what is known about this policy.
            pub fn row(self) -> &'static PolicyDescription {
                match self {
                    $(Self::$policy => &$row,)+
                }
            }
        }
    };
}

policy_types! {
    /// Takes the action closest to zero.
    ZeroAction => baselines::ZERO_ACTION,
    /// Takes random actions.
    RandomAction => baselines::RANDOM_ACTION,
    /// Replays recorded actions.
    ReplayAction => baselines::REPLAY_ACTION,
    /// The expert for the built-in tasks.
    Scripted => baselines::SCRIPTED,
    /// A GR00T checkpoint in the rank.
    Gr00t => gr00t::ROW,
    /// A TorchScript module in the rank.
    Torchscript => torchscript::ROW,
    /// A `.pt2` package in the rank.
    Exported => exported::ROW,
    /// A Python object in a process of its own.
    Python => python::ROW,
    /// A LeRobot checkpoint in a Python process.
    Lerobot => lerobot::ROW,
    /// A GR00T server.
    Gr00tRemote => gr00t_remote::ROW,
    /// An openpi server.
    Pi0Remote => pi0_remote::ROW,
    /// A policy server of XPolicyLab.
    XpolicylabRemote => xpolicylab_remote::ROW,
    /// A model server of vla-eval.
    VlaEvalRemote => vla_eval_remote::ROW,
    /// A vision-language model behind a chat server.
    OpenaiAgent => openai_agent::ROW,
}

impl PolicyType {
    /// Returns the policy that a job names, if there is one of that name, or if the name is the path
    /// of its class in Arena: classes move between modules there.
    pub fn of(name: &str) -> Option<Self> {
        let has_name =
            |policy: &Self| policy.name() == name || policy.row().aliases.contains(&name);
        let has_class = |policy: &Self| {
            let mut aliases = policy.row().aliases.iter();
            class_of_arena(name)
                .is_some_and(|class| aliases.any(|alias| class_of_arena(alias) == Some(class)))
        };
        let mut all = Self::ALL.iter().copied();
        all.clone().find(has_name).or_else(|| all.find(has_class))
    }

    /// Returns the name of the policy.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the names of all policies.
    pub fn names() -> Vec<&'static str> {
        Self::ALL.iter().map(|policy| policy.name()).collect()
    }
}

impl PolicyDescription {
    /// Returns the name under which Arena has registered the policy; our own for one that is not
    /// Arena's.
    pub fn name_in_arena(&self) -> &'static str {
        let mut names = self.aliases.iter().copied();
        names
            .find(|alias| class_of_arena(alias).is_none())
            .unwrap_or(self.name)
    }

    /// Returns all settings of the policy, without those that every policy has.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> {
        self.settings.iter().copied().flatten()
    }

    /// Returns a setting by its name.
    pub fn setting(&self, name: &str) -> Option<&'static Setting> {
        self.settings()
            .chain(OF_EVERY_POLICY)
            .find(|setting| setting.name == name)
    }
}

/// Returns the class of a path into Arena's packages: `B` of `isaaclab_arena_x.a.B`.
fn class_of_arena(path: &str) -> Option<&str> {
    let below = path.strip_prefix("isaaclab_arena")?;
    below.rsplit_once('.').map(|(_, class)| class)
}

/// Returns the name of a policy that may be given by another name; an unknown name is returned as
/// it is.
pub fn canonical_policy(name: &str) -> &str {
    match PolicyType::of(name) {
        Some(policy) => policy.name(),
        None => name,
    }
}

/// Returns whether a policy has a number of episodes of its own.
pub fn has_length(policy: &str) -> bool {
    PolicyType::of(policy).is_some_and(|policy| policy.row().has_length)
}

/// Returns whether a setting says only where a policy is, or how long it is waited for, so that
/// results do not depend on it. Of an unknown policy it does if it does of any.
pub fn is_of_place(policy: &str, setting: &str) -> bool {
    let policies = PolicyType::of(policy).map_or_else(|| PolicyType::ALL.to_vec(), |one| vec![one]);
    policies
        .iter()
        .filter_map(|policy| policy.row().setting(setting))
        .any(|setting| setting.is_of_place)
}

/// Checks the settings of a policy as far as its row tells: their names, kinds and ranges, and
/// whether any is missing. A YAML file that the job names and that exists is checked, too.
///
/// # Errors
/// Returns a [`SettingError`] for the first setting that is refused.
pub fn check(policy: PolicyType, config: &Map<String, Value>) -> Result<(), SettingError> {
    let mut reader = SettingsReader::new(policy, config);
    if policy.row().setting(YAML).is_some()
        && let Some(file) = reader.path(YAML)?
    {
        if !file.is_file() {
            return Ok(());
        }
        reader.under(&file)?;
    }
    for setting in policy.row().settings() {
        let is_given = reader.is_given(setting.name)?;
        if setting.required.is_some() && !is_given {
            return Err(reader.missing(setting.name));
        }
    }
    reader.finish()
}

#[cfg(test)]
mod tests;
