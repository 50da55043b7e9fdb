//! Maps the keys of a checkpoint to the cameras, state vectors and actions of an environment.
//!
//! Cameras and states are matched by name, cameras also by the order in `pov_cam_name_sim`, and
//! joints by the files of [`Joints`]. The action keys lie one after the other in the environment's
//! action vector.

use std::collections::BTreeMap;

use crate::env::{EnvSpec, Observation};
use crate::policy::gr00t::joints::Joints;
use crate::policy::{InferenceError, PolicyError};
use gr00t::processor::KeyActions;

/// Names under which simulators show the positions of all joints as one vector.
const JOINT_VECTORS: [&str; 2] = ["robot_joint_pos", "joint_position"];

/// The inputs and outputs of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointKeys {
    /// Video keys, in the order of the prompt.
    pub video: Vec<String>,
    /// State keys and their lengths, where the checkpoint tells them.
    pub state: Vec<(String, Option<usize>)>,
    /// Action keys and their lengths, in order.
    pub action: Vec<(String, usize)>,
}

/// The mapping between one checkpoint and one environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wiring {
    /// The checkpoint's video key and the environment's camera.
    cameras: Vec<(String, String)>,
    /// The checkpoint's state key and its source in the environment.
    states: Vec<(String, StateSource)>,
    /// For each action key of the checkpoint, the index of each number in the environment's action.
    actions: BTreeMap<String, Vec<Option<usize>>>,
    action_dim: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum StateSource {
    /// A whole vector of the environment.
    Whole(String),
    /// Some elements of a vector.
    Part { of: String, indices: Vec<usize> },
}

impl StateSource {
    /// Returns the values of this state in an observation.
    fn read(&self, observation: &Observation) -> Result<Vec<f32>, InferenceError> {
        let (Self::Whole(of) | Self::Part { of, .. }) = self;
        let gone = || InferenceError::no_state(of);
        let whole = observation.state.get(of).ok_or_else(gone)?;
        match self {
            Self::Whole(_) => Ok(whole.clone()),
            Self::Part { indices, .. } => {
                let part = indices.iter().map(|index| whole.get(*index).copied());
                part.collect::<Option<_>>().ok_or_else(gone)
            }
        }
    }
}

impl Wiring {
    /// Connects both sides by name, or as the settings say.
    ///
    /// # Errors
    /// Returns [`PolicyError::Mismatch`] with both sides if a key has no counterpart or a length
    /// differs.
    pub fn new(
        keys: &CheckpointKeys,
        env: &EnvSpec,
        cameras: Option<&[String]>,
        joints: Option<&Joints>,
    ) -> Result<Self, PolicyError> {
        let mut wiring = Self::seeing(keys, env, cameras, joints)?;
        wiring.act(keys, env, joints)?;
        Ok(wiring)
    }

    /// Returns the wiring of a checkpoint whose clients use its own keys.
    pub fn own(keys: &CheckpointKeys) -> Self {
        let states = keys.state.iter();
        Self {
            cameras: keys
                .video
                .iter()
                .map(|key| (key.clone(), key.clone()))
                .collect(),
            states: states
                .map(|(key, _)| (key.clone(), StateSource::Whole(key.clone())))
                .collect(),
            actions: one_after_the_other(keys),
            action_dim: keys.action.iter().map(|(_, width)| width).sum(),
        }
    }

    /// Connects the inputs of the policy as [`Wiring::new`] does; [`Wiring::act`] connects its
    /// actions later.
    ///
    /// # Errors
    /// Fails like [`Wiring::new`].
    pub fn seeing(
        keys: &CheckpointKeys,
        env: &EnvSpec,
        cameras: Option<&[String]>,
        joints: Option<&Joints>,
    ) -> Result<Self, PolicyError> {
        let states = keys
            .state
            .iter()
            .map(|(key, width)| Ok((key.clone(), source(key, *width, env, joints)?)));
        Ok(Self {
            cameras: views(keys, env, cameras)?,
            states: states.collect::<Result<_, PolicyError>>()?,
            actions: BTreeMap::new(),
            action_dim: env.action.names.len(),
        })
    }

    /// Connects the actions of the policy.
    ///
    /// # Errors
    /// Fails like [`Wiring::new`].
    pub fn act(
        &mut self,
        keys: &CheckpointKeys,
        env: &EnvSpec,
        joints: Option<&Joints>,
    ) -> Result<(), PolicyError> {
        self.actions = match joints {
            Some(joints) => by_joint(keys, env, joints)?,
            None => in_order(keys, env)?,
        };
        Ok(())
    }

    /// Returns the checkpoint's video keys with the environment's cameras, in the order of the
    /// prompt.
    pub fn cameras(&self) -> &[(String, String)] {
        &self.cameras
    }

    /// Returns the checkpoint's state vectors in an observation.
    ///
    /// # Errors
    /// Returns [`PolicyError::Inference`] if a vector is missing or shorter than the environment
    /// announced.
    pub fn states(&self, observation: &Observation) -> Result<Vec<(&str, Vec<f32>)>, PolicyError> {
        self.states
            .iter()
            .map(|(key, source)| Ok((key.as_str(), source.read(observation)?)))
            .collect()
    }

    /// Returns the environment's actions of one chunk: `[horizon, action_dim]`, row-major, with 0
    /// where the checkpoint gives no value.
    pub fn actions(&self, chunk: &[KeyActions], horizon: usize) -> Vec<f32> {
        let mut values = vec![0.0; horizon * self.action_dim];
        for rows in chunk {
            let Some(places) = self.actions.get(&rows.key) else {
                continue;
            };
            for (from, to) in rows
                .values
                .chunks_exact(rows.width)
                .zip(values.chunks_exact_mut(self.action_dim))
            {
                for (value, place) in from.iter().zip(places) {
                    if let Some(index) = *place {
                        to[index] = *value;
                    }
                }
            }
        }
        values
    }
}

fn views(
    keys: &CheckpointKeys,
    env: &EnvSpec,
    cameras: Option<&[String]>,
) -> Result<Vec<(String, String)>, PolicyError> {
    let shown: Vec<&str> = env
        .cameras
        .iter()
        .map(|camera| camera.name.as_str())
        .collect();
    let wanted = cameras.unwrap_or(&keys.video);
    let all_there = wanted.iter().all(|name| shown.contains(&name.as_str()));
    if wanted.len() != keys.video.len() || !all_there {
        let named = cameras
            .map(|names| format!(" as pov_cam_name_sim {}", names.join(", ")))
            .unwrap_or_default();
        let wanted = format!(
            "{} cameras ({}){named}",
            keys.video.len(),
            keys.video.join(", ")
        );
        return Err(mismatch(
            env,
            wanted,
            format!("cameras {}", shown.join(", ")),
        ));
    }
    Ok(keys
        .video
        .iter()
        .cloned()
        .zip(wanted.iter().cloned())
        .collect())
}

fn source(
    key: &str,
    width: Option<usize>,
    env: &EnvSpec,
    joints: Option<&Joints>,
) -> Result<StateSource, PolicyError> {
    let length = |name: &str| {
        env.state
            .iter()
            .find(|(other, _)| other == name)
            .map(|(_, length)| *length)
    };
    let found = || {
        env.state
            .iter()
            .map(|(name, length)| format!("{name} [{length}]"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    if let Some(indices) = joints.and_then(|joints| joints.state.get(key)) {
        let vector = JOINT_VECTORS
            .iter()
            .find_map(|name| Some((name, length(name)?)));
        let Some((of, _)) = vector.filter(|(_, length)| indices.iter().all(|index| index < length))
        else {
            let needed = indices.iter().max().map_or(0, |last| last + 1);
            let wanted = format!(
                "state {} [{needed} or more] for {key}",
                JOINT_VECTORS.join(" or ")
            );
            return Err(mismatch(env, wanted, found()));
        };
        let Some(width) = width.filter(|width| *width != indices.len()) else {
            return Ok(StateSource::Part {
                of: (*of).to_owned(),
                indices: indices.clone(),
            });
        };
        let wanted = format!("{width} joints for state {key}");
        return Err(mismatch(
            env,
            wanted,
            format!("{} in the files of joints", indices.len()),
        ));
    }
    if length(key).is_some_and(|length| width.is_none_or(|width| width == length)) {
        return Ok(StateSource::Whole(key.to_owned()));
    }
    let width = width.map(|width| format!(" [{width}]")).unwrap_or_default();
    Err(mismatch(env, format!("state {key}{width}"), found()))
}

fn in_order(
    keys: &CheckpointKeys,
    env: &EnvSpec,
) -> Result<BTreeMap<String, Vec<Option<usize>>>, PolicyError> {
    let total: usize = keys.action.iter().map(|(_, width)| width).sum();
    if total != env.action.names.len() {
        let parts: Vec<String> = keys
            .action
            .iter()
            .map(|(key, width)| format!("{key} [{width}]"))
            .collect();
        let wanted = format!("an action of {total} numbers ({})", parts.join(", "));
        let found = format!(
            "one of {} ({})",
            env.action.names.len(),
            env.action.names.join(", ")
        );
        return Err(mismatch(env, wanted, found));
    }
    Ok(one_after_the_other(keys))
}

fn one_after_the_other(keys: &CheckpointKeys) -> BTreeMap<String, Vec<Option<usize>>> {
    let mut next = 0;
    let places = keys.action.iter().map(|(key, width)| {
        let from = next;
        next += width;
        (key.clone(), (from..next).map(Some).collect())
    });
    places.collect()
}

fn by_joint(
    keys: &CheckpointKeys,
    env: &EnvSpec,
    joints: &Joints,
) -> Result<BTreeMap<String, Vec<Option<usize>>>, PolicyError> {
    let dim = env.action.names.len();
    if joints.action_len > dim {
        let wanted = format!(
            "an action of {} or more numbers, according to action_joints_config_path",
            joints.action_len
        );
        return Err(mismatch(env, wanted, format!("one of {dim}")));
    }
    // The remaining keys (Arena's G1: navigate_command, base_height_command) follow the joints in
    // the order of the keys, as far as the vector reaches.
    let mut next = joints.action_len;
    let places = keys.action.iter().map(|(key, width)| {
        if let Some(indices) = joints.action.get(key) {
            return (key.clone(), indices.iter().copied().take(*width).collect());
        }
        let from = next;
        next += width;
        (
            key.clone(),
            (from..next)
                .map(|index| (index < dim).then_some(index))
                .collect(),
        )
    });
    Ok(places.collect())
}

fn mismatch(env: &EnvSpec, wanted: String, found: String) -> PolicyError {
    PolicyError::Mismatch {
        policy: "gr00t",
        env: env.name.clone(),
        wanted,
        found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tests::env_with;

    fn named(pairs: &[(&str, usize)]) -> Vec<(String, usize)> {
        pairs
            .iter()
            .map(|(name, width)| ((*name).to_owned(), *width))
            .collect()
    }

    fn keys(state: &[(&str, usize)], action: &[(&str, usize)]) -> CheckpointKeys {
        let state = named(state)
            .into_iter()
            .map(|(key, width)| (key, Some(width)))
            .collect();
        CheckpointKeys {
            video: vec!["front".to_owned()],
            state,
            action: named(action),
        }
    }

    fn env() -> EnvSpec {
        env_with(&["front", "wrist"], [8, 8])
    }

    fn refusal(keys: &CheckpointKeys, cameras: Option<&[String]>) -> String {
        Wiring::new(keys, &env(), cameras, None)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn actions_stand_in_the_order_of_the_keys() {
        let wiring = Wiring::new(
            &keys(&[("eef_position", 3)], &[("pose", 6), ("gripper", 1)]),
            &env(),
            None,
            None,
        );
        let rows = |key: &str, width, values: &[f32]| KeyActions {
            key: key.to_owned(),
            width,
            values: values.to_vec(),
        };
        let chunk = [rows("gripper", 1, &[7.0, 8.0]), rows("pose", 6, &[1.0; 12])];
        let expected = [
            1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 7.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 8.0,
        ];
        assert_eq!(wiring.unwrap().actions(&chunk, 2), expected);
    }

    #[test]
    fn both_sides_are_named_where_they_do_not_fit() {
        let top = ["top".to_owned()];
        for (keys, cameras, reason) in [
            (
                keys(&[("eef_position", 4)], &[("pose", 7)]),
                None,
                "needs state eef_position [4]",
            ),
            (
                keys(&[], &[("pose", 8)]),
                None,
                "an action of 8 numbers (pose [8])",
            ),
            (keys(&[], &[("pose", 8)]), None, "one of 7 (dx, dy"),
            (
                keys(&[], &[("pose", 7)]),
                Some(&top[..]),
                "1 cameras (front) as pov_cam_name_sim top",
            ),
            (
                keys(&[], &[("pose", 7)]),
                Some(&top),
                "cameras front, wrist",
            ),
        ] {
            let text = refusal(&keys, cameras);
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn joints_are_gathered_and_scattered_by_name() {
        let joints = Joints {
            state: BTreeMap::from([("arm".to_owned(), vec![6, 0])]),
            action: BTreeMap::from([("arm".to_owned(), vec![Some(2), None])]),
            action_len: 3,
        };
        let wiring = Wiring::new(
            &keys(&[("arm", 2)], &[("arm", 2), ("base", 5)]),
            &env(),
            None,
            Some(&joints),
        )
        .unwrap();
        let mut observation = Observation::empty();
        observation.state.insert(
            "joint_position".to_owned(),
            vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        );
        assert_eq!(
            wiring.states(&observation).unwrap(),
            [("arm", vec![6.0, 0.0])]
        );
        let rows = |key: &str, values: &[f32]| KeyActions {
            key: key.to_owned(),
            width: values.len(),
            values: values.to_vec(),
        };
        let chunk = [
            rows("arm", &[9.0, 8.0]),
            rows("base", &[1.0, 2.0, 3.0, 4.0, 5.0]),
        ];
        assert_eq!(
            wiring.actions(&chunk, 1),
            [0.0, 0.0, 9.0, 1.0, 2.0, 3.0, 4.0]
        );
    }
}
