//! Maps the cameras and states of an environment to the key names of an openpi server.
//!
//! `droid` is Arena's and openpi's DROID (`observation/exterior_image_1_left`, …), and `libero` is
//! openpi's LIBERO example (`observation/image`, …). `observation_mapping` adds or replaces keys.

use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::PolicyError;
use crate::policy::remote::inputs::{self, EnvInputs, InputSource};

/// The keys that a server expects for a kind of robot.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenpiEmbodiment {
    /// The embodiment's name in `openpi_embodiment_adapter`.
    pub name: &'static str,
    keys: &'static [(&'static str, WantedKey)],
    /// Number of components of an action.
    pub action_dim: Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
enum WantedKey {
    /// The first of these cameras that the environment has.
    Camera(&'static [&'static str]),
    /// A vector of this length: the first of these lists of states that the environment has.
    States(usize, &'static [&'static [&'static str]]),
}

/// Seven joints and the gripper of a Franka arm, one external camera and one at the wrist.
pub(super) static DROID: OpenpiEmbodiment = OpenpiEmbodiment {
    name: "droid",
    keys: &[
        (
            "observation/exterior_image_1_left",
            WantedKey::Camera(&["exterior_image_1_left", "external_camera_rgb"]),
        ),
        (
            "observation/wrist_image_left",
            WantedKey::Camera(&["wrist_image_left", "wrist_camera_rgb"]),
        ),
        (
            "observation/joint_position",
            WantedKey::States(7, &[&["joint_position"], &["joint_pos"]]),
        ),
        (
            "observation/gripper_position",
            WantedKey::States(1, &[&["gripper_position"], &["gripper_pos"]]),
        ),
    ],
    action_dim: Some(8),
};

/// Position, rotation (axis times angle) and both fingers of LIBERO's arm; agent view and wrist
/// camera.
pub(super) static LIBERO: OpenpiEmbodiment = OpenpiEmbodiment {
    name: "libero",
    keys: &[
        (
            "observation/image",
            WantedKey::Camera(&["image", "agentview_image"]),
        ),
        (
            "observation/wrist_image",
            WantedKey::Camera(&["wrist_image", "robot0_eye_in_hand_image"]),
        ),
        (
            "observation/state",
            WantedKey::States(
                8,
                &[
                    &["state"],
                    &["x", "y", "z", "roll", "pitch", "yaw", "gripper"],
                    &[
                        "robot0_eef_pos",
                        "robot0_eef_axis_angle",
                        "robot0_gripper_qpos",
                    ],
                ],
            ),
        ),
    ],
    action_dim: Some(7),
};

/// An embodiment with only the keys in `observation_mapping`.
pub(super) static CUSTOM: OpenpiEmbodiment = OpenpiEmbodiment {
    name: "custom",
    keys: &[],
    action_dim: None,
};

/// The server's keys and their sources in an environment, in the order in which they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    sources: Vec<(String, InputSource)>,
}

impl Adapter {
    /// Connects both sides by name, or as the settings say: `mapping` gives a camera, a state or a
    /// list of states for each key of the server, and `cameras` are those of the environment in the
    /// order of the embodiment's.
    ///
    /// # Errors
    /// Returns [`PolicyError::Mismatch`] with both sides if they do not fit, and
    /// [`PolicyError::Setting`] for a malformed mapping.
    pub(super) fn new(
        embodiment: &OpenpiEmbodiment,
        env: &EnvSpec,
        mapping: Option<&Map<String, Value>>,
        cameras: Option<&[String]>,
    ) -> Result<Self, PolicyError> {
        let env = EnvInputs {
            policy: "pi0_remote",
            env,
        };
        let mut sources = Vec::new();
        let mut named = cameras.unwrap_or_default().iter();
        let views = embodiment
            .keys
            .iter()
            .filter(|(_, wanted)| matches!(wanted, WantedKey::Camera(_)))
            .count();
        if cameras.is_some_and(|cameras| cameras.len() != views) {
            let wanted = format!("{views} cameras as pov_cam_name_sim");
            let found = format!("{} there", cameras.map_or(0, <[_]>::len));
            return Err(env.mismatch(wanted, found));
        }
        for (key, wanted) in embodiment.keys {
            let given = mapping.and_then(|mapping| mapping.get(*key));
            let source = match (given, wanted) {
                (Some(given), _) => env.read(key, given)?,
                (None, WantedKey::Camera(names)) => match named.next() {
                    Some(name) => camera(key, &[name.as_str()], env)?,
                    None => camera(key, names, env)?,
                },
                (None, WantedKey::States(length, choices)) => states(key, *length, choices, env)?,
            };
            sources.push(((*key).to_owned(), source));
        }
        for (key, given) in mapping
            .into_iter()
            .flatten()
            .filter(|(key, _)| !embodiment.has(key))
        {
            sources.push((key.clone(), env.read(key, given)?));
        }
        if let Some(dim) = embodiment
            .action_dim
            .filter(|dim| *dim != env.env.action.names.len())
        {
            let wanted = format!(
                "an action of {dim} numbers for openpi_embodiment_adapter {}",
                embodiment.name
            );
            let found = format!(
                "one of {} ({})",
                env.env.action.names.len(),
                env.env.action.names.join(", ")
            );
            return Err(env.mismatch(wanted, found));
        }
        Ok(Self { sources })
    }

    pub(super) fn sources(&self) -> &[(String, InputSource)] {
        &self.sources
    }

    pub(super) fn sees(&self) -> bool {
        self.sources
            .iter()
            .any(|(_, source)| matches!(source, InputSource::Camera(_)))
    }
}

impl OpenpiEmbodiment {
    fn has(&self, key: &str) -> bool {
        self.keys.iter().any(|(own, _)| *own == key)
    }
}

fn camera(key: &str, names: &[&str], env: EnvInputs) -> Result<InputSource, PolicyError> {
    match names.iter().find(|name| env.has_camera(name)) {
        Some(name) => Ok(InputSource::Camera((*name).to_owned())),
        None => Err(env.lacks(format!("camera {} for {key}", names.join(" or ")))),
    }
}

fn states(
    key: &str,
    length: usize,
    choices: &[&[&str]],
    env: EnvInputs,
) -> Result<InputSource, PolicyError> {
    let mut known = choices.iter();
    if let Some(names) = known.find(|names| env.length_of_all(names) == Some(length)) {
        return Ok(inputs::states(names));
    }
    let choices: Vec<String> = choices.iter().map(|names| names.join(" + ")).collect();
    let wanted = format!("state {} [{length}] for {key}", choices.join(" or "));
    Err(env.lacks(wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::env::Observation;
    use crate::policy::tests::env_with;

    fn env(cameras: &[&str], states: &[(&str, usize)], action_dim: usize) -> EnvSpec {
        let state = |(name, length): &(&str, usize)| ((*name).to_owned(), *length);
        let mut env = env_with(cameras, [8, 8]);
        env.state = states.iter().map(state).collect();
        env.action.names = (0..action_dim).map(|index| format!("a{index}")).collect();
        env
    }

    fn adapter(
        embodiment: &OpenpiEmbodiment,
        env: &EnvSpec,
        mapping: Value,
    ) -> Result<Vec<(String, InputSource)>, String> {
        let adapter = Adapter::new(embodiment, env, mapping.as_object(), None);
        adapter
            .map(|adapter| adapter.sources)
            .map_err(|err| err.to_string())
    }

    fn states(names: &[&str]) -> InputSource {
        inputs::states(names)
    }

    fn arena() -> EnvSpec {
        env(
            &["wrist_camera_rgb", "external_camera_rgb"],
            &[("joint_pos", 7), ("gripper_pos", 1)],
            8,
        )
    }

    #[test]
    fn arenas_droid_is_known_by_its_names() {
        let sources = adapter(&DROID, &arena(), Value::Null).unwrap();
        let camera = |name: &str| InputSource::Camera(name.to_owned());
        let wanted = [
            ("exterior_image_1_left", camera("external_camera_rgb")),
            ("wrist_image_left", camera("wrist_camera_rgb")),
            ("joint_position", states(&["joint_pos"])),
            ("gripper_position", states(&["gripper_pos"])),
        ];
        let wanted = wanted.map(|(key, source)| (format!("observation/{key}"), source));
        assert_eq!(sources, wanted);
    }

    #[test]
    fn liberos_state_is_put_together() {
        let names = ["x", "y", "z", "roll", "pitch", "yaw", "gripper"];
        let lengths = names.map(|name| (name, if name == "gripper" { 2 } else { 1 }));
        let env = env(&["image", "wrist_image"], &lengths, 7);
        let sources = adapter(&LIBERO, &env, Value::Null).unwrap();
        assert_eq!(sources[2].1, states(&names));
        let mut observation = Observation::empty();
        observation.state.insert("a".to_owned(), vec![1.0, 2.0]);
        observation.state.insert("b".to_owned(), vec![3.0]);
        assert_eq!(
            inputs::numbers(&["b".to_owned(), "a".to_owned()], &observation).unwrap(),
            [3.0, 1.0, 2.0]
        );
    }

    #[test]
    fn a_mapping_goes_before_the_names() {
        let mapping = json!({"observation/joint_position": ["gripper_pos", "joint_pos"], "observation/x": "joint_pos"});
        let sources = adapter(&DROID, &arena(), mapping).unwrap();
        assert_eq!(sources[2].1, states(&["gripper_pos", "joint_pos"]));
        assert_eq!(
            sources[4],
            ("observation/x".to_owned(), states(&["joint_pos"]))
        );
        let cameras = ["wrist_camera_rgb", "external_camera_rgb"].map(str::to_owned);
        let swapped = Adapter::new(&DROID, &arena(), None, Some(&cameras)).unwrap();
        assert_eq!(
            swapped.sources[0].1,
            InputSource::Camera("wrist_camera_rgb".to_owned())
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sides() {
        let both = ["wrist_camera_rgb", "external_camera_rgb"];
        let short = env(&both, &[("joint_pos", 6)], 8);
        let mut other_action = arena();
        other_action.action.names.pop();
        for (env, mapping, reason) in [
            (
                env(&["front"], &[], 8),
                Value::Null,
                "needs camera exterior_image_1_left or external_camera_rgb for observation/ext",
            ),
            (
                env(&["front"], &[], 8),
                Value::Null,
                "has cameras front; states ",
            ),
            (
                short,
                Value::Null,
                "needs state joint_position or joint_pos [7]",
            ),
            (
                other_action,
                Value::Null,
                "an action of 8 numbers for openpi_embodiment_adapter droid",
            ),
            (
                arena(),
                json!({"observation/x": "nowhere"}),
                "needs nowhere for observation/x",
            ),
            (
                arena(),
                json!({"observation/x": 3}),
                "observation_mapping.observation/x` is 3, expected",
            ),
        ] {
            let text = adapter(&DROID, &env, mapping).unwrap_err();
            assert!(text.contains(reason), "{text}");
        }
    }
}
