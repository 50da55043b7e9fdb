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
    use crate::env::{ActionSpec, CameraSpec, Observation};
    use crate::policy::tests::env_spec;

    fn env(cameras: &[&str], states: &[(&str, usize)], action_dim: usize) -> EnvSpec {
        let camera = |name: &&str| CameraSpec {
            name: (*name).to_owned(),
            height: 8,
            width: 8,
        };
        let names = (0..action_dim).map(|index| format!("a{index}")).collect();
        EnvSpec {
            cameras: cameras.iter().map(camera).collect(),
            state: states
                .iter()
                .map(|(name, length)| ((*name).to_owned(), *length))
                .collect(),
            action: ActionSpec {
                names,
                low: vec![-1.0; action_dim],
                high: vec![1.0; action_dim],
                grid: Vec::new(),
            },
            ..env_spec()
        }
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
        let camera = |key: &str, name: &str| (key.to_owned(), InputSource::Camera(name.to_owned()));
        assert_eq!(
            sources,
            [
                camera("observation/exterior_image_1_left", "external_camera_rgb"),
                camera("observation/wrist_image_left", "wrist_camera_rgb"),
                (
                    "observation/joint_position".to_owned(),
                    states(&["joint_pos"])
                ),
                (
                    "observation/gripper_position".to_owned(),
                    states(&["gripper_pos"])
                ),
            ]
        );
    }

    #[test]
    fn liberos_state_is_put_together() {
        let state = [
            ("x", 1),
            ("y", 1),
            ("z", 1),
            ("roll", 1),
            ("pitch", 1),
            ("yaw", 1),
            ("gripper", 2),
        ];
        let sources = adapter(
            &LIBERO,
            &env(&["image", "wrist_image"], &state, 7),
            Value::Null,
        )
        .unwrap();
        assert_eq!(
            sources[2].1,
            states(&["x", "y", "z", "roll", "pitch", "yaw", "gripper"])
        );
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
        let refusal = |env: &EnvSpec, mapping: Value| adapter(&DROID, env, mapping).unwrap_err();
        let text = refusal(&env(&["front"], &[], 8), Value::Null);
        assert!(
            text.contains(
                "needs camera exterior_image_1_left or external_camera_rgb for observation/ext"
            ),
            "{text}"
        );
        assert!(text.contains("has cameras front; states "), "{text}");
        let short = env(
            &["wrist_camera_rgb", "external_camera_rgb"],
            &[("joint_pos", 6)],
            8,
        );
        assert!(
            refusal(&short, Value::Null).contains("needs state joint_position or joint_pos [7]")
        );
        let text = refusal(
            &EnvSpec {
                action: env(&[], &[], 7).action,
                ..arena()
            },
            Value::Null,
        );
        assert!(
            text.contains("an action of 8 numbers for openpi_embodiment_adapter droid"),
            "{text}"
        );
        assert!(
            refusal(&arena(), json!({"observation/x": "nowhere"}))
                .contains("needs nowhere for observation/x")
        );
        assert!(
            refusal(&arena(), json!({"observation/x": 3}))
                .contains("observation_mapping.observation/x` is 3, expected")
        );
    }
}
