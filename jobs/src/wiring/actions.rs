//! Where the numbers of a policy's actions go in the action vector of an interface.

use std::collections::BTreeMap;

use crate::refusal::Refusal;
use crate::wiring::{Joints, Sides};

/// For each action key of a policy, the index of each of its numbers in the action vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionPlaces {
    of: BTreeMap<String, Vec<Option<usize>>>,
}

impl ActionPlaces {
    /// Puts the keys one after the other in their order, with their lengths; or joints where the
    /// files of joints say.
    ///
    /// # Errors
    /// Refuses an action vector of another length.
    pub fn new(
        sides: Sides,
        keys: &[(String, usize)],
        joints: Option<&Joints>,
    ) -> Result<Self, Refusal> {
        let dim = sides.face.action.names.len();
        let Some(joints) = joints else {
            let total = keys.iter().map(|(_, width)| width).sum();
            let part = |(key, width): &(String, usize)| format!("{key} [{width}]");
            let parts: Vec<String> = keys.iter().map(part).collect();
            sides.action(total, format_args!(" ({})", parts.join(", ")))?;
            return Ok(Self::one_after_the_other(keys));
        };
        if joints.action_len > dim {
            let wanted = format!(
                "an action of {} or more numbers, according to action_joints_config_path",
                joints.action_len
            );
            return Err(sides.mismatch(wanted, format_args!("one of {dim}")));
        }
        // Keys that are no joints (Arena's G1: navigate_command, base_height_command) follow the
        // joints in their order, as far as the vector reaches.
        let mut next = joints.action_len;
        let places = keys.iter().map(|(key, width)| {
            if let Some(indices) = joints.action.get(key) {
                return (key.clone(), indices.iter().copied().take(*width).collect());
            }
            let from = next;
            next += width;
            let places = (from..next).map(|index| (index < dim).then_some(index));
            (key.clone(), places.collect())
        });
        Ok(Self {
            of: places.collect(),
        })
    }

    /// Puts the keys one after the other in their order, with their lengths.
    pub fn one_after_the_other(keys: &[(String, usize)]) -> Self {
        let mut next = 0;
        let places = keys.iter().map(|(key, width)| {
            let from = next;
            next += width;
            (key.clone(), (from..next).map(Some).collect())
        });
        Self {
            of: places.collect(),
        }
    }

    /// Puts one step of a key's numbers into an action.
    pub fn place(&self, key: &str, step: &[f32], action: &mut [f32]) {
        let places = self.of.get(key).into_iter().flatten();
        for (value, place) in step.iter().zip(places) {
            if let Some(index) = *place {
                action[index] = *value;
            }
        }
    }
}
