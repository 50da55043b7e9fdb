//! Policies: observation in, a chunk of actions out.
//!
//! One [`Policy`] serves all environments of a rank. The eval loop calls [`Policy::act`] with just the environments
//! that have used up their chunk; a policy keeps what it remembers by [`EnvIndex`].

use std::path::PathBuf;

use crate::env::{EnvIndex, EnvSpec, Observation};

mod agent;
mod basic;
mod batches;
mod config;
mod fields;
pub mod gr00t;
pub mod openpi;
mod planner;
pub mod remote;
mod replay;
mod scripted;
pub mod served;
mod torchscript;

pub use basic::{RandomAction, ZeroAction};
pub use batches::Shortage;
pub use config::{Made, check, files, make, make_with};
pub use planner::{Account, Give, Over, Planner};
pub use remote::Lifeline;
pub use replay::ReplayAction;
pub use scripted::Scripted;

/// Actions for the next steps of one environment: `[horizon, action_dim]`, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Chunk {
    action_dim: usize,
    values: Vec<f32>,
    is_end: bool,
}

impl Chunk {
    /// Makes a chunk of `values.len() / action_dim` steps.
    ///
    /// # Panics
    /// If `values` is not a whole number of steps, at least one.
    pub fn new(action_dim: usize, values: Vec<f32>) -> Self {
        assert!(
            action_dim > 0 && !values.is_empty() && values.len().is_multiple_of(action_dim),
            "a chunk of {} values is not a whole number of actions of {action_dim}",
            values.len()
        );
        Self { action_dim, values, is_end: false }
    }

    /// The policy ends the episode: no step is taken, and it counts as not solved unless it was solved before.
    pub fn end(action_dim: usize) -> Self {
        Self { is_end: true, ..Self::new(action_dim, vec![0.0; action_dim]) }
    }

    /// Whether the policy ends the episode.
    pub fn is_end(&self) -> bool {
        self.is_end
    }

    /// Number of steps.
    pub fn horizon(&self) -> usize {
        self.values.len() / self.action_dim
    }

    /// The action of step `index`, if the chunk reaches that far.
    pub fn action(&self, index: usize) -> Option<&[f32]> {
        self.values.chunks_exact(self.action_dim).nth(index)
    }
}

/// A new episode in one environment.
#[derive(Clone, Copy, Debug)]
pub struct EpisodeStart {
    /// Where it runs.
    pub env: EnvIndex,
    /// Number within its job, `0..num_episodes`.
    pub episode: u64,
    /// Seed of the episode: everything random that a policy does comes from it.
    pub seed: u64,
}

/// What can go wrong in a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The type is not known.
    #[error("unknown policy_type `{name}`: known are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is, comma separated.
        known: String,
    },
    /// A policy argument has a wrong name, type or value.
    #[error("{place} is {found}, {wanted}")]
    Argument {
        /// The argument, and the file it stands in.
        place: String,
        /// Its value.
        found: String,
        /// What is accepted, as a clause.
        wanted: String,
    },
    /// A file that the policy is made from cannot be used.
    #[error("`{}`: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The environment does not show what the policy needs.
    #[error("policy `{policy}` needs {wanted}; environment `{env}` has {found}")]
    Mismatch {
        /// Policy type.
        policy: &'static str,
        /// Environment name.
        env: String,
        /// What is missing.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// A checkpoint cannot be used.
    #[error("{0}")]
    Checkpoint(String),
    /// Inference failed.
    #[error("{0}")]
    Inference(String),
    /// The process can use its GPU no more; only another one can.
    #[error("{0}")]
    DeviceLost(String),
    /// A policy server stays away, or does not want what it is asked for.
    #[error("policy server {server}: {reason}")]
    Remote {
        /// Where it is, or would be.
        server: String,
        /// What was asked, and what came of it.
        reason: String,
    },
}

/// What the eval loop wants to know of a policy before the first step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicySpec {
    /// Steps in a chunk.
    pub action_horizon: usize,
    /// Whether [`Policy::act`] looks at pictures; if not, steps may go unrendered.
    pub needs_video: bool,
    /// Steps before now that [`Policy::act`] looks at, 0 for most; every step is then shown to [`Policy::observe`].
    pub looks_back: usize,
    /// A length of its own (a replay), in episodes.
    pub num_episodes: Option<u64>,
}

/// Observation in, a chunk of actions out.
pub trait Policy {
    /// Fixed for the life of the policy.
    fn spec(&self) -> PolicySpec;

    /// What it says of itself for the journal: `policy_path`, `dtype` and the like.
    fn facts(&self) -> Vec<(&'static str, serde_json::Value)> {
        Vec::new()
    }

    /// What the user should know before the first episode: settings without effect and the like.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// Whether another process infers: then no number of rows of one inference is better than all.
    fn is_remote(&self) -> bool {
        false
    }

    /// How often it ran out of memory, and what that came down to.
    fn shortage(&self) -> Shortage {
        Shortage::default()
    }

    /// Seed that an episode must start from, if the policy knows better than the plan (a replay does).
    fn episode_seed(&self, _episode: u64) -> Option<u64> {
        None
    }

    /// Gets ready for inferences of `rows` rows, none of which has more than `max_rows`: what the first ones would have
    /// to wait for is done before an episode begins.
    fn warm_up(&mut self, _rows: usize, _max_rows: usize) {}

    /// Forgets what it knew of these environments.
    fn reset(&mut self, starts: &[EpisodeStart]);

    /// Sees an episode's first observation and that of every step, before [`Policy::act`] is asked about it.
    fn observe(&mut self, _env: EnvIndex, _observation: &Observation) {}

    /// The policy as one that thinks elsewhere, if it does.
    fn planner(&mut self) -> Option<&mut dyn Planner> {
        None
    }

    /// One chunk per row, in order; never called with no rows.
    ///
    /// # Errors
    /// [`PolicyError::Inference`] when the model fails; the rows' episodes are then errors, not failures.
    fn act(&mut self, rows: &[(EnvIndex, &Observation)]) -> Result<Vec<Chunk>, PolicyError>;
}

/// Checks that the environment shows the state vectors a policy reads.
pub(crate) fn require_state(policy: &'static str, env: &EnvSpec, keys: &[&str]) -> Result<(), PolicyError> {
    let missing: Vec<_> = keys.iter().filter(|key| !env.state.iter().any(|(name, _)| name == *key)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(PolicyError::Mismatch {
        policy,
        env: env.name.clone(),
        wanted: format!("state {}", missing.join(", ")),
        found: env.state.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::env::ActionSpec;

    /// Shows nothing.
    pub(crate) fn observation() -> Observation {
        Observation::empty()
    }

    /// The table-top's action vector and state keys, without a simulator.
    pub(crate) fn env_spec() -> EnvSpec {
        let names = ["dx", "dy", "dz", "droll", "dpitch", "dyaw", "gripper"];
        let state = [
            ("joint_position", 7),
            ("joint_velocity", 7),
            ("gripper_position", 1),
            ("eef_position", 3),
            ("eef_quaternion", 4),
            ("object_position", 3),
            ("object_quaternion", 4),
            ("goal_position", 3),
        ];
        EnvSpec {
            name: "push".to_owned(),
            state: state.map(|(name, length)| (name.to_owned(), length)).to_vec(),
            cameras: Vec::new(),
            action: ActionSpec {
                names: names.map(str::to_owned).to_vec(),
                low: vec![-1.0; 7],
                high: vec![1.0; 7],
                grid: Vec::new(),
            },
            discrete: None,
            control_hz: 20,
            max_episode_steps: 200,
            language: String::new(),
            ends_on_success: true,
            decimation: 25,
            sim_dt: 0.002,
        }
    }

    #[test]
    fn a_chunk_ends_at_its_horizon() {
        let chunk = Chunk::new(2, vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!((chunk.horizon(), chunk.action(1), chunk.action(2)), (2, Some(&[3.0, 4.0][..]), None));
    }

    #[test]
    fn a_missing_state_vector_is_named() {
        let text = require_state("scripted", &env_spec(), &["joint_position", "door_angle"]).unwrap_err().to_string();
        assert!(text.starts_with("policy `scripted` needs state door_angle; environment `push` has joint_position"));
    }
}
