//! What clients can know of the policy.

use jobs::interface::{CameraSpec, Interface};
use models::gr00t::processor::{Modalities, ModalityConfig};

use crate::policy::{ClientKeys, PolicyFacts};

/// Key of the instruction. In flat observations, GR00T's clients give it two names.
pub const LANGUAGE_KEY: &str = "task";

/// Key of the action vector.
const ACTION_KEY: &str = "action";

/// Seed of the episodes for which clients do not choose one.
const SEED: u64 = 10;

/// The properties of a policy that clients can ask for.
#[derive(Clone, Debug)]
pub struct ServedSpec {
    /// What the policy says of itself.
    pub facts: PolicyFacts,
    /// Its inputs and actions.
    pub keys: ClientKeys,
    /// What clients show and take, unless the policy acts for its checkpoint's own keys; its
    /// instruction is for clients that send none.
    pub interface: Option<Interface>,
    /// Number of steps in a chunk, all of which clients are to execute.
    pub horizon: usize,
}

impl ServedSpec {
    /// Describes a policy that acts for its checkpoint's own keys.
    pub fn of_keys(facts: PolicyFacts, keys: ClientKeys) -> Self {
        Self {
            horizon: facts.horizon,
            interface: None,
            facts,
            keys,
        }
    }

    /// Describes a policy that acts for an interface. Clients get as many actions as are executed,
    /// and send the steps to which the policy looks back, because only they have seen them all.
    pub fn of_interface(facts: PolicyFacts, interface: Interface) -> Self {
        let back = i64::try_from(facts.looks_back).unwrap_or(0);
        let ahead = i64::try_from(facts.chunk_length).unwrap_or(0);
        let modality = |keys: Vec<String>, steps: std::ops::Range<i64>| ModalityConfig {
            delta_indices: steps.collect(),
            keys,
            ..ModalityConfig::default()
        };
        let views = seen(&facts, &interface).map(|camera| camera.name.clone());
        let states = interface.state.iter();
        let names = states.clone().map(|(name, _)| name.clone());
        let modalities = Modalities {
            video: modality(views.collect(), -back..1),
            state: modality(names.collect(), -back..1),
            action: modality(vec![ACTION_KEY.to_owned()], 0..ahead),
            language: modality(vec![LANGUAGE_KEY.to_owned()], 0..1),
        };
        let keys = ClientKeys {
            modalities,
            states: states
                .map(|(name, length)| (name.clone(), Some(*length)))
                .collect(),
            actions: vec![(ACTION_KEY.to_owned(), interface.action.names.len())],
            noise_shape: None,
            seed: SEED,
        };
        Self {
            horizon: facts.chunk_length,
            interface: Some(interface),
            facts,
            keys,
        }
    }

    /// Returns the cameras of an interface that the policy sees.
    pub fn cameras(&self) -> impl Iterator<Item = &CameraSpec> {
        let interface = self.interface.iter();
        interface.flat_map(|interface| seen(&self.facts, interface))
    }
}

fn seen<'a>(facts: &PolicyFacts, interface: &'a Interface) -> impl Iterator<Item = &'a CameraSpec> {
    let needs_video = facts.needs_video;
    interface.cameras.iter().filter(move |_| needs_video)
}
