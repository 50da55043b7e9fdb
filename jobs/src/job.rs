//! One evaluation job: an environment, a policy, and how long.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::assign::Numbers;

/// Position of a job in its file, from 0; what the assignment to ranks goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobIndex(pub usize);

/// One evaluation job, checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Position in the file.
    pub index: JobIndex,
    /// Name in tables, folders and file names; unique in a file.
    pub name: String,
    /// Registered environment name (`arena_env_args.environment`).
    pub environment: String,
    /// Copies of the environment: in one rank, or of a shared job in all of them together.
    pub num_envs: usize,
    /// `total_num_envs`: every rank has a share of the environments. `None`: the job runs on one rank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<Sharing>,
    /// `arena_env_args.enable_cameras`: `None` when the file does not say.
    pub enable_cameras: Option<bool>,
    /// Everything else in `arena_env_args`, in file order.
    pub env_args: Map<String, Value>,
    /// Registered policy name.
    pub policy_type: String,
    /// `policy_config_dict`, called `policy_args` by older files.
    pub policy_config: Map<String, Value>,
    /// How long it runs.
    pub length: Length,
    /// How its environments are stepped.
    #[serde(default)]
    pub rollout: Rollout,
    /// What is filmed.
    #[serde(default)]
    pub video: VideoSettings,
    /// How often the environment is torn down and built again, at least 1.
    pub num_rebuilds: u64,
    /// Of its episodes only these are run (`--only`); `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<Numbers>,
    /// Overrides the task's own words.
    pub language_instruction: Option<String>,
    /// Nested environment variations, kept as they are.
    pub variations: Map<String, Value>,
    /// Seeds this job instead of the command line's `--seed`; jobs with the same one see the same initial states.
    pub seed: Option<u64>,
    /// Only `pending` jobs run.
    pub status: Status,
}

/// A job whose environments are dealt to all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// Environments of all ranks. Episode `e` belongs to environment `e % total_num_envs`.
    pub total_num_envs: usize,
    /// Environments with the same task that stay in one stage of one worker, at least 1.
    pub group_size: usize,
}

/// How the environments of a job are stepped: RLinf's words, as in `env.eval` of its YAML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// An environment begins another episode as soon as one has ended, until it has taken all its steps, and every
    /// episode that ends counts. Otherwise it runs one episode an epoch.
    pub auto_reset: bool,
    /// What the task calls an end does not end an episode, the time limit alone does; success is remembered.
    pub ignore_terminations: bool,
    /// Steps of each environment in one epoch.
    pub max_steps_per_rollout_epoch: Option<u64>,
    /// Epochs, at least 1.
    pub rollout_epoch: u64,
    /// Groups of environments that take turns between simulation and policy; `None`: as the command line says.
    pub pipeline_stage_num: Option<usize>,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            auto_reset: false,
            ignore_terminations: false,
            max_steps_per_rollout_epoch: None,
            rollout_epoch: 1,
            pipeline_stage_num: None,
        }
    }
}

impl Rollout {
    /// Steps after which an episode is cut, beside the environment's own limit: without `auto_reset` an epoch is one
    /// episode, which cannot be longer than the epoch.
    pub fn episode_limit(&self) -> Option<u64> {
        self.max_steps_per_rollout_epoch.filter(|_| !self.auto_reset)
    }
}

/// `video_cfg`: what is filmed, and where the files go. Command-line options win.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoSettings {
    /// `save_video`; `None` when nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub save: Option<bool>,
    /// `video_base_dir`: folder of the files, which is the job's if nobody says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_dir: Option<PathBuf>,
    /// `use_high_res_cameras`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_high_res_cameras: Option<bool>,
    /// `cameras`: from left to right; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cameras: Option<Vec<String>>,
    /// `fps`: frames a second; `None` for the steps a second of the environment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fps: Option<u32>,
    /// `per_episode`: a file an episode, with `success` or `failure` in its name.
    #[serde(default)]
    pub per_episode: bool,
    /// `grid`: also one file a worker, with all its environments.
    #[serde(default)]
    pub grid: bool,
}

/// How long a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Exactly this many episodes, over all environments and rebuilds.
    Episodes(u64),
    /// This many steps of each environment, over all epochs; an episode that is under way then is not scored.
    Steps(u64),
    /// As long as the policy has something to say (a replay).
    Policy,
}

/// Arena's job states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// To be run.
    #[default]
    Pending,
    /// Being run.
    Running,
    /// Every episode ran.
    Completed,
    /// Stopped by an error.
    Failed,
}

impl Status {
    /// Arena's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

impl Job {
    /// Whether `episode` is one that is to be run.
    pub fn selects(&self, episode: u64) -> bool {
        self.only.as_ref().is_none_or(|only| only.has(episode))
    }

    /// Those of its first `count` episodes that are to be run, ascending.
    pub fn selection(&self, count: u64) -> impl Iterator<Item = u64> {
        let all = 0..if self.only.is_none() { count } else { 0 };
        all.chain(self.only.iter().flat_map(move |only| only.below(count)))
    }

    /// How many of its `count` episodes are to be run.
    pub fn selected(&self, count: u64) -> u64 {
        self.only.as_ref().map_or(count, Numbers::count)
    }

    /// Episode ranges of the rebuilds: as even as it goes, the first ones take the remainder (5 over 2: 3, 2).
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
