//! Which camera or state of an environment is which part of XPolicyLab's observation, format v1.0.

use serde_json::{Map, Value};

use crate::env::EnvSpec;
use crate::policy::remote::inputs::{EnvInputs, InputSource};
use crate::policy::{PolicyError, argument};

/// The cameras of the format. An environment's camera of the same name is sent.
const CAMERAS: &[&str] = &[
    "cam_head",
    "cam_left_wrist",
    "cam_right_wrist",
    "cam_wrist",
    "cam_third_view",
];

/// The states of one arm, without prefix or with `left_` and `right_`. An environment's state of
/// the same name is sent.
const ARM_STATES: &[&str] = &[
    "arm_joint_state",
    "ee_joint_state",
    "ee_pose",
    "tcp_pose",
    "delta_ee_pose",
];

/// Number of values of a pose: x, y, z, and a quaternion with w first.
const POSE: usize = 7;

/// The parts of an observation and their sources in an environment, in the order in which they are
/// sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Names below `vision`, each with a camera.
    pub(super) cameras: Vec<(String, String)>,
    /// Paths below `state`, such as `["mobile", "base_pose"]`, each with states.
    pub(super) states: Vec<(Vec<String>, Vec<String>)>,
}

impl Adapter {
    /// Connects the parts of the format that `mapping` gives, and those whose names the environment
    /// has.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] for a malformed mapping, and [`PolicyError::Mismatch`] with
    /// both sides if the environment lacks what is mapped, or has nothing to be sent.
    pub(super) fn new(
        env: &EnvSpec,
        mapping: Option<&Map<String, Value>>,
    ) -> Result<Self, PolicyError> {
        let env = EnvInputs {
            policy: "xpolicylab_remote",
            env,
        };
        let mut adapter = Self {
            cameras: Vec::new(),
            states: Vec::new(),
        };
        for (key, given) in mapping.into_iter().flatten() {
            adapter.add(key, given, env)?;
        }
        for name in CAMERAS {
            if env.has_camera(name) && !adapter.has_camera(name) {
                let camera = (*name).to_owned();
                adapter.cameras.push((camera.clone(), camera));
            }
        }
        for prefix in ["", "left_", "right_"] {
            for name in ARM_STATES {
                adapter.add_state_of_the_same_name(&format!("{prefix}{name}"), env)?;
            }
        }
        if adapter.cameras.is_empty() && adapter.states.is_empty() {
            let wanted = "an observation_mapping, or names of XPolicyLab such as cam_head and \
                          arm_joint_state";
            return Err(env.lacks(wanted.to_owned()));
        }
        Ok(adapter)
    }

    /// Adds an entry of `observation_mapping`.
    fn add(&mut self, key: &str, given: &Value, env: EnvInputs) -> Result<(), PolicyError> {
        let parts: Vec<&str> = key.split('/').collect();
        let is_whole = parts.len() > 1 && parts.iter().all(|part| !part.is_empty());
        let source = match (&parts[..], is_whole) {
            (["vision", _] | ["state", ..], true) => env.read(key, given)?,
            _ => {
                let wanted = "expected a key such as vision/cam_head or state/arm_joint_state";
                let field = format!("observation_mapping.{key}");
                return Err(argument(&field, &given.to_string(), wanted));
            }
        };
        match (parts[0], source) {
            ("vision", InputSource::Camera(camera)) => {
                self.cameras.push((parts[1].to_owned(), camera));
                Ok(())
            }
            ("state", InputSource::States(names)) => self.add_states(key, &parts[1..], names, env),
            ("vision", InputSource::States(_)) => Err(env.lacks(format!("a camera for {key}"))),
            (_, _) => Err(env.lacks(format!("a state for {key}"))),
        }
    }

    fn add_state_of_the_same_name(
        &mut self,
        name: &str,
        env: EnvInputs,
    ) -> Result<(), PolicyError> {
        let is_taken = self.states.iter().any(|(path, _)| path == &[name]);
        if is_taken || env.length(name).is_none() {
            return Ok(());
        }
        let key = format!("state/{name}");
        self.add_states(&key, &[name], vec![name.to_owned()], env)
    }

    fn add_states(
        &mut self,
        key: &str,
        path: &[&str],
        names: Vec<String>,
        env: EnvInputs,
    ) -> Result<(), PolicyError> {
        let path: Vec<String> = path.iter().map(|part| (*part).to_owned()).collect();
        let is_other = |other: &[String]| other.starts_with(&path) || path.starts_with(other);
        if let Some((other, _)) = self.states.iter().find(|(other, _)| is_other(other)) {
            let wanted = format!("but state/{} is given, too", other.join("/"));
            let field = format!("observation_mapping.{key}");
            return Err(argument(&field, &format!("{names:?}"), &wanted));
        }
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let length = env.length_of_all(&all).unwrap_or(0);
        if key.ends_with("_pose") && length != POSE {
            let wanted = format!("{POSE} values (x, y, z, qw, qx, qy, qz) for {key}");
            return Err(env.mismatch(wanted, format!("{} [{length}]", names.join(" + "))));
        }
        self.states.push((path, names));
        Ok(())
    }

    fn has_camera(&self, name: &str) -> bool {
        self.cameras.iter().any(|(other, _)| other == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::policy::tests::env_with;

    fn env(cameras: &[&str], states: &[(&str, usize)]) -> EnvSpec {
        let state = |(name, length): &(&str, usize)| ((*name).to_owned(), *length);
        let mut env = env_with(cameras, [8, 8]);
        env.state = states.iter().map(state).collect();
        env
    }

    fn adapter(env: &EnvSpec, mapping: &Value) -> Result<Adapter, String> {
        Adapter::new(env, mapping.as_object()).map_err(|err| err.to_string())
    }

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn names_of_the_format_need_no_mapping() {
        let env = env(
            &["top", "cam_wrist", "cam_head"],
            &[("left_arm_joint_state", 6), ("object_position", 3)],
        );
        let found = adapter(&env, &Value::Null).unwrap();
        let camera = |name: &str| (name.to_owned(), name.to_owned());
        assert_eq!(found.cameras, [camera("cam_head"), camera("cam_wrist")]);
        let left = texts(&["left_arm_joint_state"]);
        assert_eq!(found.states, [(left.clone(), left)]);
    }

    #[test]
    fn a_mapping_goes_before_the_names() {
        let env = env(
            &["cam_head", "top"],
            &[("arm_joint_state", 7), ("position", 3), ("rotation", 4)],
        );
        let mapping = json!({
            "vision/cam_head": "top",
            "state/arm_joint_state": "position",
            "state/mobile/base_pose": ["position", "rotation"],
        });
        let found = adapter(&env, &mapping).unwrap();
        assert_eq!(found.cameras, [("cam_head".to_owned(), "top".to_owned())]);
        let arm = (texts(&["arm_joint_state"]), texts(&["position"]));
        let base = (
            texts(&["mobile", "base_pose"]),
            texts(&["position", "rotation"]),
        );
        assert_eq!(found.states, [arm, base]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_both_sides() {
        let env = env(&["top"], &[("position", 3), ("ee_pose", 6)]);
        let refusal = |mapping: Value| adapter(&env, &mapping).unwrap_err();
        for key in "cam_head vision vision/ vision/cam_head/color state//x".split(' ') {
            let text = refusal(json!({key: "top"}));
            let wanted = format!(
                "observation_mapping.{key}` is \"top\", expected a key such as vision/cam_head or"
            );
            assert!(text.contains(&wanted), "{text}");
        }
        for (mapping, reason) in [
            (json!({"vision/cam_head": "position"}), "needs a camera for"),
            (json!({"state/x": "top"}), "needs a state for state/x"),
            (json!({"state/x": "angle"}), "needs angle for state/x"),
            (
                json!({"state/mobile": "position", "state/mobile/x": "position"}),
                "but state/mobile is given, too",
            ),
            (
                json!({"vision/cam_head": "top"}),
                "needs 7 values (x, y, z, qw, qx, qy, qz) for state/ee_pose",
            ),
            (json!({"vision/cam_head": "top"}), "has ee_pose [6]"),
        ] {
            let text = refusal(mapping);
            assert!(text.contains(reason), "{text}");
        }
        let text = adapter(&self::env(&["top"], &[]), &Value::Null).unwrap_err();
        assert!(
            text.contains("needs an observation_mapping, or names"),
            "{text}"
        );
        assert!(text.ends_with("has cameras top; states "), "{text}");
    }
}
