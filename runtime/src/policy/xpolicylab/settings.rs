//! Reads a job's settings of a policy behind a server of XPolicyLab.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::remote::PolicyServer;
use crate::policy::xpolicylab::actions::MOST_ACTIONS;
use crate::policy::{PolicyError, argument};
use jobs::policies::{self, Xpolicylab};

/// Default timeout (XPolicyLab: `request_timeout_s` of `PolicyEvalClientConfig`).
const TIMEOUT: Duration = Duration::from_secs(120);

/// Default port (XPolicyLab: `PolicyServerConfig`).
const PORT: u16 = 19000;

/// The actions of a robot with one arm that is controlled by its joints.
const ACTION_KEYS: [&str; 2] = ["arm_joint_state", "ee_joint_state"];

/// The settings of a job's policy on a server of XPolicyLab.
#[derive(Debug)]
pub struct XpolicylabSettings {
    /// The server: its address and how to talk to it.
    pub server: PolicyServer,
    /// Cameras and states of the environment for parts of the observation.
    pub mapping: Option<Map<String, Value>>,
    /// The server's actions, in the order of the environment's action vector.
    pub action_keys: Vec<String>,
    /// Maximum number of actions of a chunk that are executed.
    pub chunk_length: usize,
    /// The instruction to use if neither job nor environment has one.
    pub language: Option<String>,
    /// Notes for the user on fields of the job that have no effect.
    pub notes: Vec<String>,
}

impl XpolicylabSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Xpolicylab = policies::read(config)?;
        let server = PolicyServer::websocket(given.websocket, PORT, TIMEOUT)?;
        let action_keys = given.action_keys.map(|keys| keys.0);
        let action_keys = action_keys.unwrap_or_else(|| ACTION_KEYS.map(str::to_owned).to_vec());
        let repeated = action_keys
            .iter()
            .enumerate()
            .find(|(nth, key)| action_keys[..*nth].contains(key));
        if action_keys.is_empty() {
            return Err(argument("action_keys", "[]", "expected at least one key"));
        }
        if let Some((_, key)) = repeated {
            let found = format!("{action_keys:?}");
            return Err(argument(
                "action_keys",
                &found,
                &format!("with {key} twice"),
            ));
        }
        Ok(Self {
            notes: server.notes_on_devices(config),
            server,
            mapping: given.observation_mapping,
            action_keys,
            chunk_length: given.action_chunk_length.map_or(MOST_ACTIONS, usize::from),
            language: given.language_instruction.filter(|text| !text.is_empty()),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> Result<XpolicylabSettings, String> {
        let config = config.as_object().expect("an object is meant");
        XpolicylabSettings::read(config).map_err(|err| err.to_string())
    }

    #[test]
    fn what_is_not_given_is_as_in_xpolicylab() {
        let settings = read(&json!({"remote_host": "gpu7", "policy_device": "cuda:0"})).unwrap();
        assert_eq!(settings.server.to_string(), "ws://gpu7:19000");
        assert_eq!(settings.action_keys, ["arm_joint_state", "ee_joint_state"]);
        assert_eq!(settings.chunk_length, 4096);
        let one = read(&json!({"action_keys": "ee_pose"})).unwrap();
        assert_eq!(one.action_keys, ["ee_pose"]);
        assert_eq!(
            settings.notes,
            ["no effect of policy_device: the policy is at ws://gpu7:19000"]
        );
    }
}
