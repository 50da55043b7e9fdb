//! Reads a job's settings of a policy behind openpi's protocol: those of Arena's `Pi0RemotePolicy`,
//! and those that other servers need.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::argument;
use crate::policy::remote::PolicyServer;
use jobs::policies::{self, Pi0, Pi0Adapter};

/// Default timeout. openpi's own client waits forever; the first inference of a server compiles its
/// network.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Height and width of the pictures that openpi's models use.
const PICTURE: [usize; 2] = [224, 224];

/// The settings of a job's policy on an openpi server.
#[derive(Debug)]
pub struct OpenpiSettings {
    /// The server: its address and how to talk to it.
    pub server: PolicyServer,
    /// The server's names of cameras and states.
    pub embodiment: Pi0Adapter,
    /// The server's checkpoint, by name.
    pub variant: String,
    /// Number of actions of a chunk that are executed.
    pub chunk_length: usize,
    /// The instruction to use if neither job nor environment has one.
    pub language: Option<String>,
    /// Cameras of the environment in the order of the embodiment's; matched by name if not given.
    pub cameras: Option<Vec<String>>,
    /// Cameras and states of the environment for each of the server's keys.
    pub mapping: Option<Map<String, Value>>,
    /// Height and width of the pictures that are sent, in pixels.
    pub picture: [usize; 2],
    /// Maximum number of connections: each environment has its own until the limit is reached.
    pub connections: usize,
    /// Notes for the user on fields of the job that have no effect.
    pub notes: Vec<String>,
}

impl OpenpiSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Pi0 = policies::read(config)?;
        let embodiment = given.openpi_embodiment_adapter;
        let variant = given.policy_variant;
        let chunk_length = match given.action_chunk_length {
            Some(length) => length.into(),
            None => default_length(embodiment, &variant)?,
        };
        let mapping = given.observation_mapping;
        if embodiment == Pi0Adapter::Custom && mapping.as_ref().is_none_or(Map::is_empty) {
            let wanted = "expected the server's names with openpi_embodiment_adapter custom";
            return Err(argument("observation_mapping", "missing", wanted));
        }
        let server = PolicyServer::websocket(given.websocket, 8000, TIMEOUT)?;
        Ok(Self {
            notes: server.notes_on_devices(config),
            server,
            embodiment,
            variant,
            chunk_length,
            language: given.language_instruction.filter(|text| !text.is_empty()),
            cameras: given.pov_cam_name_sim.map(|names| names.0),
            mapping,
            picture: given.target_image_size.map_or(PICTURE, |size| size.0),
            connections: given.remote_connections.into(),
        })
    }
}

/// Returns the default chunk length: `open_loop_horizon` of Arena's adapter for DROID,
/// `replan_steps` of openpi's LIBERO example.
fn default_length(embodiment: Pi0Adapter, variant: &str) -> Result<usize, PolicyError> {
    match (embodiment, variant) {
        (Pi0Adapter::Droid, "pi05") => Ok(15),
        (Pi0Adapter::Droid, "pi0" | "pi0_fast") => Ok(10),
        (Pi0Adapter::Libero, _) => Ok(5),
        (Pi0Adapter::Droid, _) => {
            let wanted = "expected one of pi05, pi0, pi0_fast, or action_chunk_length";
            Err(argument("policy_variant", &format!("{variant:?}"), wanted))
        }
        (Pi0Adapter::Custom, _) => {
            let wanted =
                "expected the number of actions to execute with openpi_embodiment_adapter custom";
            Err(argument("action_chunk_length", "missing", wanted))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> OpenpiSettings {
        OpenpiSettings::read(config.as_object().unwrap()).unwrap()
    }

    #[test]
    fn arenas_fields_are_read() {
        let settings = read(&json!({
            "policy_variant": "pi05", "policy_device": "cuda:0", "remote_host": "127.0.0.1", "remote_port": 8000,
            "openpi_embodiment_adapter": "droid", "ping_interval": null, "ping_timeout": 20.0,
        }));
        assert_eq!(settings.server.to_string(), "ws://127.0.0.1:8000");
        let note = "no effect of policy_device: the policy is at ws://127.0.0.1:8000";
        assert_eq!(
            (settings.chunk_length, &settings.notes[..]),
            (15, &[note.to_owned()][..])
        );
        assert_eq!(
            read(&json!({"policy_variant": "pi0_fast"})).chunk_length,
            10
        );
        let libero = read(&json!({"openpi_embodiment_adapter": "libero"}));
        assert_eq!(libero.chunk_length, 5);
        let small = read(&json!({"target_image_size": [180, 320, 3]}));
        assert_eq!(small.picture, [180, 320]);
    }
}
