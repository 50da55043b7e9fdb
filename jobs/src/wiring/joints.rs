//! Maps joints by name between a simulator's single long vector and the groups that a checkpoint
//! uses.
//!
//! ```text
//! policy_joints_config_path   joints: {left_arm: [shoulder, elbow], left_hand: [thumb]}  order
//! state_joints_config_path    joints: {thumb: 2, shoulder: 0, elbow: 1}                  state
//! action_joints_config_path   joints: {shoulder: 0, elbow: 1, thumb: 2, waist: 3}        action
//! ```
//!
//! These are three files of Isaac Lab Arena: the checkpoint's order of the joints, and the indices
//! of the simulator's state and action. A simulator joint that no group names is always zero.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::policies::{Gr00tWiring, argument};
use crate::refusal::Refusal;
use crate::settings::{self, Settings, read_yaml};
use crate::wiring::Sides;

/// The configuration fields that name the files.
const POLICY: &str = "policy_joints_config_path";
const STATE: &str = "state_joints_config_path";
const ACTION: &str = "action_joints_config_path";

/// Largest index of a joint, more than any robot has.
const LAST: usize = 4095;

/// The position of each joint of each group in the simulator's vectors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Joints {
    /// Indices into the simulator's state, by group, in the checkpoint's order.
    pub state: BTreeMap<String, Vec<usize>>,
    /// Indices into the simulator's action; `None` for a joint that the simulator does not command.
    pub action: BTreeMap<String, Vec<Option<usize>>>,
    /// Length of the joint part of the simulator's action.
    pub action_len: usize,
}

impl Joints {
    /// Reads the files if they are named; either all of them must be named or none.
    ///
    /// # Errors
    /// Refuses some of the files without the others, and a file of another form.
    pub fn read(given: &Gr00tWiring) -> Result<Option<Self>, Refusal> {
        let (policy, state, action) = match (
            &given.policy_joints_config_path,
            &given.state_joints_config_path,
            &given.action_joints_config_path,
        ) {
            (Some(policy), Some(state), Some(action)) => (policy, state, action),
            (None, None, None) => return Ok(None),
            (None, _, _) => return Err(incomplete(POLICY)),
            (_, None, _) => return Err(incomplete(STATE)),
            (_, _, None) => return Err(incomplete(ACTION)),
        };
        let (groups, in_state, in_action): (Named<Vec<String>>, Named<Index>, Named<Index>) =
            (read(policy)?, read(state)?, read(action)?);
        let mut joints = Self {
            state: BTreeMap::new(),
            action: BTreeMap::new(),
            action_len: in_action.values().max().map_or(0, |last| last.0 + 1),
        };
        for (group, names) in groups {
            let of_state = names.iter().map(|name| {
                let reason =
                    || format!("joint {name} is missing, but the checkpoint's state has it");
                let index = in_state.get(name).map(|index| index.0);
                index.ok_or_else(|| Refusal::in_file(state, reason()))
            });
            let of_state = of_state.collect::<Result<_, _>>()?;
            let of_action = names.iter();
            let of_action = of_action.map(|name| Some(in_action.get(name)?.0)).collect();
            joints.state.insert(group.clone(), of_state);
            joints.action.insert(group, of_action);
        }
        Ok(Some(joints))
    }
}

fn incomplete(field: &str) -> Refusal {
    argument(
        field,
        "missing",
        "expected all three files of joints, or none",
    )
}

/// A file of joints, which may have more than them.
#[derive(Deserialize, JsonSchema)]
struct JointsFile<T> {
    joints: Named<T>,
    #[serde(flatten)]
    _others: Map<String, Value>,
}

/// What a file says of each joint or group.
type Named<T> = BTreeMap<String, T>;

/// The place of a joint in a vector.
#[derive(PartialEq, Eq, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(transparent)]
struct Index(#[schemars(range(min = 0, max = LAST))] usize);

fn read<T: Settings>(file: &Path) -> Result<Named<T>, Refusal> {
    let place = format!("`{}`", file.display());
    let file: JointsFile<T> = settings::read(&place, &read_yaml(file)?)?;
    Ok(file.joints)
}

/// For each action key of a policy, the index of each of its numbers in the action vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ActionPlaces(BTreeMap<String, Vec<Option<usize>>>);

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
        Ok(Self::behind(joints, keys, dim))
    }

    /// Puts the keys one after the other in their order, with their lengths.
    pub fn one_after_the_other(keys: &[(String, usize)]) -> Self {
        Self::behind(&Joints::default(), keys, usize::MAX)
    }

    /// Puts joints where they are. Keys that are no joints (Arena's G1: navigate_command,
    /// base_height_command) follow them in their order, as far as a vector of `dim` numbers
    /// reaches.
    fn behind(joints: &Joints, keys: &[(String, usize)], dim: usize) -> Self {
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
        Self(places.collect())
    }

    /// Puts one step of a key's numbers into an action.
    pub fn place(&self, key: &str, step: &[f32], action: &mut [f32]) {
        let places = self.0.get(key).into_iter().flatten();
        for (value, place) in step.iter().zip(places) {
            if let Some(index) = *place {
                action[index] = *value;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    /// Returns what files with these texts say, or why they are refused.
    fn read(given: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Map::new();
        for line in given.lines() {
            let (field, text) = line.split_once(" = ").unwrap();
            let path = folder.path().join(field);
            fs::write(&path, text).unwrap();
            config.insert(field.to_owned(), json!(path));
        }
        let given = crate::settings::read("", &config).unwrap();
        let told = match Joints::read(&given) {
            Ok(joints) => format!("{joints:?}"),
            Err(refusal) => refusal.to_string(),
        };
        told.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn joints_are_found_by_name_or_the_files_are_refused_by_the_joint() {
        rig::cases::check("src/wiring/joints.txt", read);
        assert_eq!(read(""), "None");
    }
}
