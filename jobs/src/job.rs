//! An evaluation job: an environment, a policy, and a length.

use std::borrow::Cow;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::environments::is_python_environment;
use crate::latency::InferenceLatency;
use crate::numbers::Numbers;
use crate::tree::{merge, overlay};

/// Maximum number of copies of an environment in one rank; each has its own simulator and video.
pub const MAX_ENVS: usize = 4096;

/// Maximum number of environments over all ranks.
pub const MAX_TOTAL_ENVS: usize = 65_536;

/// Position of a job among those of its run, from 0; the assignment to ranks uses it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct JobIndex(pub usize);

/// An evaluation job that was checked. In a plan it is written as in a jobs file, see
/// [`crate::file::entry`].
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// Position among the jobs of the run.
    pub index: JobIndex,
    /// Name in tables, folders and file names; unique in a file.
    pub name: String,
    /// Registered environment name (`arena_env_args.environment`).
    pub environment: String,
    /// Number of copies of the environment: in one rank, or for a shared job over all ranks.
    pub num_envs: usize,
    /// Number of environments over all ranks of a shared job, of which every rank has a share: episode
    /// `e` belongs to environment `e % total_num_envs`. `None`: the job is not shared.
    pub total_num_envs: Option<usize>,
    /// `arena_env_args.enable_cameras`; `None` if the file does not set it.
    pub enable_cameras: Option<bool>,
    /// All other fields of `arena_env_args`, in file order.
    pub env_args: Map<String, Value>,
    /// Registered policy name.
    pub policy_type: String,
    /// `policy_config_dict`, called `policy_args` in older files.
    pub policy_config: Map<String, Value>,
    /// How long the job runs.
    pub length: Length,
    /// How its environments are stepped.
    pub rollout: Rollout,
    /// How long the policy thinks while the environment goes on; `None`: the environment waits.
    pub latency: Option<InferenceLatency>,
    /// What is filmed.
    pub video: VideoSettings,
    /// How often the environment is closed and built again, at least 1.
    pub num_rebuilds: u64,
    /// The episodes that are run (`--only`); `None` means all.
    pub only: Option<Numbers>,
    /// Instruction that replaces the one of the task.
    pub language_instruction: Option<String>,
    /// The benchmark suite that the job was generated from (`rrun suite`). It changes no result.
    pub suite: Option<Suite>,
    /// Overrides of the environment's arguments, see [`crate::variation`].
    pub variations: Map<String, Value>,
    /// The job that this one is a variant of; `None` unless `variations` is a list or a grid.
    pub variant: Option<Variant>,
    /// Seed of this job that replaces `--seed`. Jobs with the same seed see the same initial
    /// states.
    pub seed: Option<u64>,
    /// Status of the job; only `pending` jobs run.
    pub status: Status,
}

/// Which protocol of which benchmark suite a job follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Suite {
    /// Name of the suite, as `rrun suite` lists it.
    pub name: String,
    /// Version of its protocol. Results of different versions are not comparable.
    pub protocol: String,
    /// Fields of the job that replace those of the protocol, such as `num_episodes`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
}

/// How a job belongs to its control: the same job without the overrides in `variations`. Both have
/// the same seeds, so that each episode has a partner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variant {
    /// Name of the control job.
    pub of: String,
    /// Name of the variant, which may be the same in several jobs.
    pub name: String,
    /// Groups of variants that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
}

/// How the environments of a job are stepped, with RLinf's names from `env.eval` of its YAML.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rollout {
    /// Whether an environment begins the next episode as soon as one has ended, until it has taken
    /// all its steps; every episode that ends counts. Otherwise it runs one episode per epoch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub auto_reset: bool,
    /// Whether the end of the task does not end an episode, so that only the time limit does;
    /// success is remembered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ignore_terminations: bool,
    /// Number of steps of each environment in one epoch.
    #[schemars(range(min = 1, max = u32::MAX))]
    pub max_steps_per_rollout_epoch: Option<u64>,
    /// Number of environment groups that take turns between simulation and policy; `None` means the
    /// value of the command line.
    #[schemars(range(min = 1, max = MAX_TOTAL_ENVS))]
    pub pipeline_stage_num: Option<usize>,
}

impl Rollout {
    /// Returns the number of steps after which an episode is truncated, in addition to the
    /// environment's own limit. Without `auto_reset` an epoch is one episode, which cannot be
    /// longer than the epoch.
    pub fn episode_limit(&self) -> Option<u64> {
        self.max_steps_per_rollout_epoch
            .filter(|_| !self.auto_reset)
    }
}

/// `video_cfg`: what is filmed, and where the files go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VideoSettings {
    /// `save_video`; `None` if it is not set.
    #[serde(rename = "save_video", skip_serializing_if = "Option::is_none")]
    pub save: Option<bool>,
    /// `video_base_dir`: folder of the files; `None` means the folder of the job.
    #[serde(rename = "video_base_dir", skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<PathBuf>,
    /// `use_high_res_cameras`; `None` if it is not set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub use_high_res_cameras: Option<bool>,
    /// `cameras`: names from left to right; `None` for all cameras.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cameras: Option<Vec<String>>,
    /// `fps`: frames per second; `None` for the step rate of the environment.
    #[schemars(range(min = 1, max = 1000))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
    /// `per_episode`: whether each episode gets its own file, with `success` or `failure` in its
    /// name.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub per_episode: bool,
    /// `grid`: whether each worker also gets a file with all its environments.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub grid: bool,
}

/// How long a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// This number of episodes, over all environments and rebuilds.
    Episodes(u64),
    /// This number of steps of each environment, over all epochs; an episode that has not ended by
    /// then is not scored.
    Steps(u64),
    /// As long as the policy has actions (a replay).
    Policy,
}

/// Arena's job states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The job is to be run.
    #[default]
    Pending,
    /// The job is running.
    Running,
    /// Every episode was run.
    Completed,
    /// An error ended the job.
    Failed,
    /// It began, and the run is over without it. Only in reports; Arena has no word for it.
    #[schemars(skip)]
    Interrupted,
    /// A user has asked, on the page of the run, to begin no more episodes of it. Only in reports.
    #[schemars(skip)]
    Skipped,
}

impl Job {
    /// Returns how refusals name the job.
    pub fn place(&self) -> String {
        format!("job {} ({})", self.index.0, self.name)
    }

    /// Returns the job with each variation merged into its arguments: into `env_kwargs` if a Python
    /// factory creates the environment, otherwise into `arena_env_args`. Maps are merged recursively,
    /// all other values are replaced.
    pub fn varied(&self) -> Cow<'_, Self> {
        if self.variations.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut varied = self.clone();
        if is_python_environment(&self.environment) {
            let arguments = varied.env_args.entry(FACTORY_ARGUMENTS);
            let arguments = arguments.or_insert(Value::Null);
            // Any other value is refused later for its type.
            if arguments.is_object() || arguments.is_null() {
                *arguments = merge(arguments.take(), self.variations.clone().into());
            }
        } else {
            overlay(&mut varied.env_args, self.variations.clone());
        }
        Cow::Owned(varied)
    }

    /// Returns the name that the seeds of its episodes follow from: a variant has those of its
    /// control.
    pub fn seed_name(&self) -> &str {
        self.variant
            .as_ref()
            .map_or(&self.name, |variant| &variant.of)
    }

    /// Returns whether the same job has the same results again.
    pub fn is_repeatable(&self) -> bool {
        self.latency.is_none_or(|latency| latency.is_repeatable())
    }

    /// Returns the number of its episodes; `None` for a job that does not count them.
    pub fn episodes(&self) -> Option<u64> {
        match self.length {
            Length::Episodes(count) => Some(count),
            Length::Steps(_) | Length::Policy => None,
        }
    }

    /// Returns whether `episode` is to be run.
    pub fn selects(&self, episode: u64) -> bool {
        let is_there = self.episodes().is_none_or(|count| episode < count);
        is_there && self.only.as_ref().is_none_or(|only| only.has(episode))
    }

    /// Returns those of the first `count` episodes that are to be run.
    pub fn selection(&self, count: u64) -> Numbers {
        let only = self.only.as_ref();
        only.map_or_else(|| Numbers::between(0..count), |only| only.below(count))
    }

    /// Returns how many of `count` episodes are to be run.
    pub fn selected(&self, count: u64) -> u64 {
        self.selection(count).count()
    }

    /// Returns the range of episodes of each build of the environment. They are as even as
    /// possible; the first ones get the remainder (5 over 2: 3, 2).
    pub fn rebuilds(&self, episodes: u64) -> Vec<std::ops::Range<u64>> {
        let (share, extra) = (episodes / self.num_rebuilds, episodes % self.num_rebuilds);
        let mut next = 0;
        (0..self.num_rebuilds)
            .map(|rebuild| {
                let start = next;
                next += share + u64::from(rebuild < extra);
                start..next
            })
            .collect()
    }
}

/// Name of the argument that holds the arguments of a Python environment's factory.
const FACTORY_ARGUMENTS: &str = "env_kwargs";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn env_args(environment: &str, args: Value, variations: Value) -> Value {
        let mut args = args;
        args["environment"] = environment.into();
        let entry = json!({"name": "a", "arena_env_args": args, "policy_type": "zero_action", "num_episodes": 1,
                           "variations": variations});
        let job = crate::file::parse(&json!({"jobs": [entry]}))
            .unwrap()
            .remove(0);
        Value::Object(job.varied().env_args.clone())
    }

    #[test]
    fn a_variation_replaces_an_argument_of_the_environment() {
        let found = env_args(
            "reach",
            json!({"light_intensity": 500}),
            json!({"light_intensity": 900}),
        );
        assert_eq!(found, json!({"light_intensity": 900}));
    }

    #[test]
    fn a_factory_in_python_gets_variations_among_its_arguments() {
        let args = json!({"env_kwargs": {"light": {"hdr": "hall", "intensity": 1}, "size": 64}});
        let found = env_args("gym:Push-v0", args, json!({"light": {"intensity": 2}}));
        let wanted = json!({"env_kwargs": {"light": {"hdr": "hall", "intensity": 2}, "size": 64}});
        assert_eq!(found, wanted);
        for none in [json!({}), json!({"env_kwargs": null})] {
            let shown = env_args("gym:Push-v0", none, json!({"a": 1}));
            assert_eq!(shown, json!({"env_kwargs": {"a": 1}}));
        }
    }
}
