//! The names that protocols of policy servers give to cameras and states.

use serde_json::{Map, Value};

use crate::format::word;
use crate::policies::{Pi0Adapter, argument};
use crate::refusal::Refusal;
use crate::wiring::{Given, Kind, MAPPING, Sides, Source, Wanted, What, Wiring, whole};

/// Seven joints and the gripper of a Franka arm, one external camera and one at the wrist: Arena's
/// and openpi's DROID.
static DROID: [Wanted; 4] = [
    Wanted {
        key: "observation/exterior_image_1_left",
        what: What::Camera(&["exterior_image_1_left", "external_camera_rgb"]),
    },
    Wanted {
        key: "observation/wrist_image_left",
        what: What::Camera(&["wrist_image_left", "wrist_camera_rgb"]),
    },
    Wanted {
        key: "observation/joint_position",
        what: What::States(7, &[&["joint_position"], &["joint_pos"]]),
    },
    Wanted {
        key: "observation/gripper_position",
        what: What::States(1, &[&["gripper_position"], &["gripper_pos"]]),
    },
];

/// Position, rotation (axis times angle) and both fingers of LIBERO's arm; agent view and wrist
/// camera.
static LIBERO: [Wanted; 3] = [
    Wanted {
        key: "observation/image",
        what: What::Camera(&["image", "agentview_image"]),
    },
    Wanted {
        key: "observation/wrist_image",
        what: What::Camera(&["wrist_image", "robot0_eye_in_hand_image"]),
    },
    Wanted {
        key: "observation/state",
        what: What::States(
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
    },
];

impl Pi0Adapter {
    /// Connects the keys that an openpi server expects, and those of the mapping, to an interface.
    ///
    /// # Errors
    /// Refuses an interface that does not fit.
    pub fn connect(self, sides: Sides, given: &Given) -> Result<Wiring, Refusal> {
        let (wanted, action) = match self {
            Self::Droid => (&DROID[..], Some(8)),
            Self::Libero => (&LIBERO[..], Some(7)),
            Self::Custom => (&[][..], None),
        };
        let wiring = Wiring::connect(sides, wanted, given)?;
        if let Some(dim) = action {
            let why = format!(" for openpi_embodiment_adapter {}", word(self));
            sides.action(dim, why)?;
        }
        Ok(wiring)
    }
}

/// The keys under which model servers of vla-eval look for the state.
const STATES: [&str; 2] = ["states", "state"];

/// Connects the keys of vla-eval: `images/<name>` is a camera, and any other key of the mapping a
/// camera, a state or a list of states. Without a mapping, every camera keeps its name, and all
/// states follow each other under both names of the state.
///
/// # Errors
/// Refuses a malformed mapping, and one that names what is not there.
pub fn vla_eval(sides: Sides, mapping: Option<&Map<String, Value>>) -> Result<Wiring, Refusal> {
    let kind_of = |key: &str| match key {
        "images" => Err("expected images/<name>: camera"),
        "task_description" => Err("but the instruction is that of job or environment"),
        key if key.starts_with("images/") => Ok(Kind::Camera),
        _ => Ok(Kind::Any),
    };
    if mapping.is_some() {
        let given = Given {
            mapping,
            kind_of: Some(kind_of),
            ..Given::default()
        };
        return Wiring::connect(sides, &[], &given);
    }
    let names = sides.face.cameras.iter().map(|camera| &camera.name);
    let images = names.map(|name| (format!("images/{name}"), Source::Camera(name.clone())));
    let states: Vec<_> = sides
        .face
        .state
        .iter()
        .map(|(name, _)| whole(name))
        .collect();
    let keys = STATES.iter().filter(|_| !states.is_empty());
    let states = keys.map(|key| ((*key).to_owned(), Source::States(states.clone())));
    Ok(Wiring {
        inputs: images.chain(states).collect(),
    })
}

impl Wiring {
    /// Returns the number of values of the state that a model server of vla-eval looks for; 0 if
    /// none is sent.
    pub fn state_length(&self, sides: Sides) -> usize {
        let mut states = self.states();
        let parts = states.find(|(key, _)| STATES.contains(key));
        let parts = parts.map_or(&[][..], |(_, parts)| parts);
        parts
            .iter()
            .filter_map(|part| sides.face.length(&part.of))
            .sum()
    }
}

/// The cameras of XPolicyLab's format v1.0. An environment's camera of the same name is sent.
const CAMERAS: [&str; 5] = [
    "cam_head",
    "cam_left_wrist",
    "cam_right_wrist",
    "cam_wrist",
    "cam_third_view",
];

/// Its states of one arm, without prefix or with `left_` and `right_`. An environment's state of
/// the same name is sent.
const ARM_STATES: [&str; 5] = [
    "arm_joint_state",
    "ee_joint_state",
    "ee_pose",
    "tcp_pose",
    "delta_ee_pose",
];

/// Number of values of a pose: x, y, z, and a quaternion with w first.
const POSE: usize = 7;

/// Connects the parts of XPolicyLab's format that the mapping gives, and those whose names the
/// interface has. Their keys are paths, such as `vision/cam_head` and `state/mobile/base_pose`.
///
/// # Errors
/// Refuses a malformed mapping, one that names what is not there, and an interface of which nothing
/// would be sent.
pub fn xpolicylab(sides: Sides, mapping: Option<&Map<String, Value>>) -> Result<Wiring, Refusal> {
    let kind_of = |key: &str| match key.split_once('/') {
        _ if key.split('/').any(str::is_empty) => Err(EXAMPLES),
        Some(("vision", name)) if !name.contains('/') => Ok(Kind::Camera),
        Some(("state", _)) => Ok(Kind::States),
        _ => Err(EXAMPLES),
    };
    let given = Given {
        mapping,
        kind_of: Some(kind_of),
        ..Given::default()
    };
    let mut wiring = Wiring::connect(sides, &[], &given)?;
    for name in CAMERAS
        .iter()
        .filter(|name| sides.face.camera(name).is_some())
    {
        wiring.add(format!("vision/{name}"), Source::Camera((*name).to_owned()));
    }
    for prefix in ["", "left_", "right_"] {
        let names = ARM_STATES.map(|name| format!("{prefix}{name}"));
        for name in names
            .iter()
            .filter(|name| sides.face.length(name).is_some())
        {
            wiring.add(format!("state/{name}"), Source::States(vec![whole(name)]));
        }
    }
    if wiring.inputs.is_empty() {
        return Err(sides.lacks(
            "an observation_mapping, or names of XPolicyLab such as cam_head and arm_joint_state",
        ));
    }
    wiring.check_paths()?;
    wiring.check_poses(sides)?;
    Ok(wiring)
}

/// What keys of XPolicyLab look like.
const EXAMPLES: &str = "expected a key such as vision/cam_head or state/arm_joint_state";

impl Wiring {
    /// Adds an input unless it is there.
    fn add(&mut self, key: String, source: Source) {
        if !self.inputs.iter().any(|(other, _)| *other == key) {
            self.inputs.push((key, source));
        }
    }

    /// Refuses a path that goes through another one.
    fn check_paths(&self) -> Result<(), Refusal> {
        for (nth, (key, _)) in self.inputs.iter().enumerate() {
            let is_within = |inner: &str, outer: &str| {
                let rest = inner.strip_prefix(outer);
                rest.is_some_and(|rest| rest.starts_with('/'))
            };
            let mut before = self.inputs[..nth].iter().map(|(other, _)| other);
            if let Some(other) = before.find(|other| is_within(key, other) || is_within(other, key))
            {
                let wanted = format!("but {other} is given, too");
                return Err(argument(MAPPING, &format!("with {key}"), &wanted));
            }
        }
        Ok(())
    }

    fn check_poses(&self, sides: Sides) -> Result<(), Refusal> {
        for (key, parts) in self.states().filter(|(key, _)| key.ends_with("_pose")) {
            let lengths = parts.iter().filter_map(|part| sides.face.length(&part.of));
            let length: usize = lengths.sum();
            if length != POSE {
                let names: Vec<&str> = parts.iter().map(|part| part.of.as_str()).collect();
                return Err(sides.mismatch(
                    format_args!("{POSE} values (x, y, z, qw, qx, qy, qz) for {key}"),
                    format_args!("{} [{length}]", names.join(" + ")),
                ));
            }
        }
        Ok(())
    }
}
