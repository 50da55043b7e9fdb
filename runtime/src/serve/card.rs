//! What clients can know of the policy.

use models::gr00t::processor::{Modalities, ModalityConfig};
use serde_json::Value;

use crate::env::EnvSpec;
use crate::policy::{OwnKeys, PolicyFacts};

/// Key of the instruction. In flat observations, GR00T's clients give it two names.
pub const LANGUAGE_KEY: &str = "task";

/// Key of the action vector.
const ACTION_KEY: &str = "action";

/// Seed of the episodes for which clients do not choose one.
const SEED: u64 = 10;

/// The properties of a policy that clients can ask for.
#[derive(Clone, Debug)]
pub struct ServedSpec {
    /// Name of the policy, the `policy_type` of a job.
    pub policy: &'static str,
    /// Inputs and actions of the policy.
    pub modalities: Modalities,
    /// Height and width of the views; empty if any size will do.
    pub view_sizes: Vec<(String, [u32; 2])>,
    /// State vectors and their lengths, where the checkpoint tells them.
    pub states: Vec<(String, Option<usize>)>,
    /// Action vectors and their lengths, in order.
    pub actions: Vec<(String, usize)>,
    /// Name of each number of the action vector of an interface; empty for a checkpoint's own keys.
    pub action_names: Vec<String>,
    /// Number of steps in a chunk, all of which clients are to execute.
    pub horizon: usize,
    /// Shape of the noise from which a chunk starts; `None` if clients cannot choose it.
    pub noise_shape: Option<[usize; 2]>,
    /// Seed of the episodes for which clients do not choose one.
    pub seed: u64,
    /// The instruction for clients that may leave it out.
    pub prompt: Option<String>,
    /// What the policy reports about itself.
    pub facts: Vec<(&'static str, Value)>,
}

impl ServedSpec {
    /// Describes a policy that acts for its checkpoint's own keys.
    pub fn of_keys(facts: PolicyFacts, keys: OwnKeys) -> Self {
        Self {
            policy: facts.policy,
            modalities: keys.modalities,
            view_sizes: Vec::new(),
            states: keys.states,
            actions: keys.actions,
            action_names: Vec::new(),
            horizon: facts.horizon,
            noise_shape: Some(keys.noise_shape),
            seed: keys.seed,
            prompt: None,
            facts: facts.reported,
        }
    }

    /// Describes a policy that acts for an interface. Clients get as many actions as are executed,
    /// and send the steps to which the policy looks back, because only they have seen them all.
    pub fn of_interface(facts: PolicyFacts, env: &EnvSpec) -> Self {
        let cameras = || env.cameras.iter().filter(|_| facts.needs_video);
        let back = i64::try_from(facts.looks_back).unwrap_or(0);
        let ahead = i64::try_from(facts.chunk_length).unwrap_or(0);
        let modality = |keys: Vec<String>, steps: std::ops::Range<i64>| ModalityConfig {
            delta_indices: steps.collect(),
            keys,
            sin_cos_keys: None,
            mean_std_keys: None,
            actions: None,
        };
        let views = cameras().map(|camera| camera.name.clone()).collect();
        let states = env.state.iter().map(|(name, _)| name.clone()).collect();
        let modalities = Modalities {
            video: modality(views, -back..1),
            state: modality(states, -back..1),
            action: modality(vec![ACTION_KEY.to_owned()], 0..ahead),
            language: modality(vec![LANGUAGE_KEY.to_owned()], 0..1),
        };
        let sizes = cameras().map(|camera| (camera.name.clone(), [camera.height, camera.width]));
        let states = env.state.iter();
        Self {
            policy: facts.policy,
            modalities,
            view_sizes: sizes.collect(),
            states: states
                .map(|(name, length)| (name.clone(), Some(*length)))
                .collect(),
            actions: vec![(ACTION_KEY.to_owned(), env.action.names.len())],
            action_names: env.action.names.clone(),
            horizon: facts.chunk_length,
            noise_shape: None,
            seed: SEED,
            prompt: Some(env.language.clone()),
            facts: facts.reported,
        }
    }

    /// Returns whether clients have the cameras, states and actions of an interface.
    pub fn is_interface(&self) -> bool {
        !self.action_names.is_empty()
    }
}
