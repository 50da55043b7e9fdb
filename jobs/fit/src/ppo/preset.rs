//! Presets of training settings, under the names of WildRobot's files.

use clap::ValueEnum;
use serde_json::{Value, json};

/// Base settings of a training.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// A two-minute test that fits everywhere.
    Quick,
    /// For a 12 GB card.
    Default,
    /// For a 24 GB card.
    Production,
}

impl Preset {
    /// Returns the settings of the preset. `quick` and `default` are those of
    /// `playground/quick.yaml` and `default.yaml`. `production` has the sizes of s003 (the
    /// repository's own file now has 4096/1024/16, which takes 27 GB by s003's line) and the
    /// repository's networks.
    pub fn config(self) -> Value {
        let (timesteps, evals, length) = match self {
            Self::Quick => (100_000, 2, 200),
            Self::Default => (30_000_000, 200, 1000),
            Self::Production => (50_000_000, 200, 1000),
        };
        let (envs, eval_envs, batch, minibatches, unroll, updates) = match self {
            Self::Quick => (256, 32, 128, 2, 5, 2),
            Self::Default => (1024, 64, 256, 4, 10, 4),
            Self::Production => (2048, 128, 512, 8, 10, 4),
        };
        let layers: &[u64] = match self {
            Self::Quick => &[128, 128],
            Self::Default => &[256, 256, 128],
            Self::Production => &[512, 512, 256],
        };
        let is_long = self != Self::Quick;
        json!({
            "training": {"num_timesteps": timesteps, "num_evals": evals, "episode_length": length, "seed": 0},
            "ppo": {
                "num_envs": envs, "num_eval_envs": eval_envs, "batch_size": batch, "unroll_length": unroll,
                "num_minibatches": minibatches, "num_updates_per_batch": updates, "learning_rate": 0.0003,
                "entropy_cost": 0.01, "discounting": 0.97, "reward_scaling": 0.1, "max_grad_norm": 1.0,
                "clipping_epsilon": 0.2, "normalize_observations": true, "action_repeat": 1
            },
            "network": {"policy_hidden_layers": layers, "value_hidden_layers": layers},
            "logging": {"use_wandb": is_long},
            "rendering": {"render_videos": is_long}
        })
    }
}
