//! The policies of `rrun-rank`: one row and one struct of settings each, which launcher, memory
//! planner, ranks and documentation read.
//!
//! ```text
//! row of a PolicyType, ─┬─► rules, rlinf, identity    names, aliases, identity of a job
//! struct of settings    ├─► check                      wrong and missing settings
//!                       ├─► launcher/src/plan/missing  files that have to exist
//!                       ├─► jobs/fit/src/memory        GPU memory
//!                       └─► runtime/src/policy         a constructor for each
//! ```
//! A new policy is a struct in `rank` or `server`, a row in `rows`, and a folder in
//! `runtime/src/policy`. The compiler asks for the rest.

pub mod lerobot;
mod rank;
mod rows;
mod server;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::refusal::Refusal;
use crate::settings::kinds::Ignored;
use crate::settings::{self, SettingRow, Settings};

pub use rank::{
    Batching, DECLARED_MEMORY, Dtype, Exported, Gr00t, Gr00tWiring, Lerobot, OneAction,
    PolicyProcess, Python, Replay, Scripted, Torchscript,
};
pub use rows::PolicyType;
pub use server::{
    Agent, Gr00tRemote, Pi0, Pi0Adapter, Scheduler, Server, VlaEval, Websocket, Xpolicylab,
};

/// The object of a job with the settings of its policy.
pub const OBJECT: &str = "policy_config_dict";

/// The setting with the path of Arena's YAML file, which has settings too.
pub const YAML: &str = "policy_config_yaml_path";

/// Settings of a policy with those that Arena gives to every one.
#[derive(Deserialize, JsonSchema)]
struct OfArena<T> {
    #[serde(flatten)]
    own: T,
    /// the device is that of the rank
    #[schemars(extend("place" = true))]
    #[serde(rename = "policy_device")]
    _policy_device: Option<Ignored>,
    /// the device is that of the rank
    #[schemars(extend("place" = true))]
    #[serde(rename = "policy_device_id")]
    _policy_device_id: Option<Ignored>,
    /// the number is that of the job
    #[schemars(extend("place" = true))]
    #[serde(rename = "num_envs")]
    _num_envs: Option<Ignored>,
}

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
    /// A job with this policy, as JSON: `rrun list` shows it, and a test plans it.
    pub example: &'static str,
    /// Its settings, without those that every policy has.
    pub settings: fn() -> &'static [SettingRow],
    /// Checks its settings.
    check: fn(&Map<String, Value>) -> Result<(), Refusal>,
    /// Returns the settings that are given, see [`given`].
    given: fn(&Map<String, Value>) -> Map<String, Value>,
    /// How its memory on the GPU of a rank is estimated.
    pub memory: MemoryRule,
    /// Whether it has a checkpoint, which `rollout.model` of a configuration means.
    pub has_checkpoint: bool,
    /// Whether it has a number of episodes of its own, so that a job may lack a length.
    pub has_length: bool,
    /// How `rrun serve` offers it.
    pub serving: Serving,
    /// Why it has no chunk whose rest an environment could take during an inference, as a clause.
    pub without_rest: Option<&'static str>,
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

impl PolicyType {
    /// Returns the policy that a job names, if there is one of that name, or if the name is the path
    /// of its class in Arena: classes move between modules there.
    pub fn of(name: &str) -> Option<Self> {
        let class = class_of_arena(name);
        let is_meant = |alias: &&str| {
            *alias == name || class.is_some_and(|class| class_of_arena(alias) == Some(class))
        };
        let has_name =
            |policy: &Self| policy.name() == name || policy.row().aliases.iter().any(is_meant);
        Self::ALL.iter().copied().find(has_name)
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
    pub fn settings(&self) -> &'static [SettingRow] {
        (self.settings)()
    }

    /// Returns a setting by its name.
    pub fn setting(&self, name: &str) -> Option<&'static SettingRow> {
        self.settings().iter().find(|setting| setting.name == name)
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
    let of_policies = policies
        .iter()
        .filter_map(|policy| policy.row().setting(setting));
    let of_arena = settings::rows::<OfArena<NoSettings>>().iter();
    of_policies
        .chain(of_arena.filter(|row| row.name == setting))
        .any(|setting| setting.is_of_place)
}

/// Of no policy.
#[derive(Deserialize, JsonSchema)]
struct NoSettings {}

/// Checks the settings of a policy as far as their declaration tells: names, kinds and ranges, and
/// whether any is missing. A YAML file that the job names and that exists is checked, too.
///
/// # Errors
/// Refuses the first setting that is wrong.
pub fn check(policy: PolicyType, config: &Map<String, Value>) -> Result<(), Refusal> {
    (policy.row().check)(config)
}

/// Reads the settings of a policy, which are in the job, and for some policies also in a YAML file
/// that the job names; the job takes precedence.
///
/// # Errors
/// Refuses an unknown name, a wrong value, a missing setting, and a file that cannot be read.
pub fn read<T: Settings>(config: &Map<String, Value>) -> Result<T, Refusal> {
    let settings: OfArena<T> = match yaml::<T>(config) {
        Some(file) => settings::read_over(OBJECT, config, &file)?,
        None => settings::read(OBJECT, config)?,
    };
    Ok(settings.own)
}

fn check_as<T: Settings>(config: &Map<String, Value>) -> Result<(), Refusal> {
    // Who looks for files says that it is missing.
    if yaml::<T>(config).is_some_and(|file| !file.is_file()) {
        return settings::given_of::<OfArena<T>>(OBJECT, config).map(drop);
    }
    read::<T>(config).map(drop)
}

/// Returns the YAML file of a policy that has such a setting.
fn yaml<T: Settings>(config: &Map<String, Value>) -> Option<PathBuf> {
    let has_one = settings::rows::<T>().iter().any(|row| row.name == YAML);
    let path = config.get(YAML).filter(|_| has_one)?.as_str()?;
    Some(PathBuf::from(path))
}

/// Returns the settings that a job and its YAML file give, as far as they can be read, for whoever
/// looks into them without making a policy.
pub fn given(policy: PolicyType, config: &Map<String, Value>) -> Map<String, Value> {
    (policy.row().given)(config)
}

fn given_as<T: Settings>(config: &Map<String, Value>) -> Map<String, Value> {
    let mut found = config.clone();
    if let Some(file) = yaml::<T>(config) {
        found.extend(settings::given_in::<OfArena<T>>(&file, config).unwrap_or_default());
    }
    found.retain(|_, value| !value.is_null());
    found
}

/// Returns the refusal of a setting of a policy; `found` and `wanted` are clauses.
pub fn argument(field: &str, found: &str, wanted: &str) -> Refusal {
    Refusal::new(format_args!("`{OBJECT}.{field}` is {found}, {wanted}"))
}

/// Refuses if more actions of a chunk are to be executed than it may have.
///
/// # Errors
/// Names the setting `action_chunk_length`.
pub fn check_chunk_length(
    chunk_length: Option<usize>,
    horizon: Option<usize>,
) -> Result<(), Refusal> {
    match (chunk_length, horizon) {
        (Some(length), Some(horizon)) if length > horizon => Err(argument(
            "action_chunk_length",
            &length.to_string(),
            &format!("expected at most the action_horizon {horizon}"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
