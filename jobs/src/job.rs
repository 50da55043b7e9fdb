//! One evaluation job: an environment, a policy, and how long.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Position of a job in its file, from 0; what the assignment to ranks goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// Copies of the environment in one rank.
    pub num_envs: usize,
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
    /// How often the environment is torn down and built again, at least 1.
    pub num_rebuilds: u64,
    /// Overrides the task's own words.
    pub language_instruction: Option<String>,
    /// Nested environment variations, kept as they are.
    pub variations: Map<String, Value>,
    /// Seeds this job instead of the command line's `--seed`; jobs with the same one see the same initial states.
    pub seed: Option<u64>,
    /// Only `pending` jobs run.
    pub status: Status,
}

/// How long a job runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// Exactly this many episodes, over all environments and rebuilds.
    Episodes(u64),
    /// This many steps of each environment; an episode that is under way then is not scored.
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
