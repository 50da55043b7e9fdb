//! Reads a job's settings of a policy behind openpi's protocol: those of Arena's `Pi0RemotePolicy`,
//! and those that other servers need.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::argument;
use crate::policy::openpi::adapter::{CUSTOM, DROID, LIBERO, OpenpiEmbodiment};
use crate::policy::remote::{Defaults, PolicyServer};
use jobs::policies::{PolicyType, SettingsReader};

/// Default timeout. openpi's own client waits forever; the first inference of a server compiles its
/// network.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Height and width of the pictures that openpi's models use.
const PICTURE: [usize; 2] = [224, 224];

/// Maximum number of connections, unless `remote_connections` says otherwise.
const CONNECTIONS: usize = 16;

/// The settings of a job's policy on an openpi server.
#[derive(Debug)]
pub struct OpenpiSettings {
    /// The server: its address and how to talk to it.
    pub server: PolicyServer,
    pub(super) embodiment: &'static OpenpiEmbodiment,
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
    /// Returns [`PolicyError::Setting`] with the name of the field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let mut fields = SettingsReader::new(PolicyType::Pi0Remote, config);
        let words: [(&str, &'static OpenpiEmbodiment); 3] =
            [("droid", &DROID), ("libero", &LIBERO), ("custom", &CUSTOM)];
        let embodiment = fields
            .one_of("openpi_embodiment_adapter", &words)?
            .unwrap_or(&DROID);
        let variant = fields
            .string("policy_variant")?
            .unwrap_or_else(|| "pi05".to_owned());
        let chunk_length = match fields.count("action_chunk_length")? {
            Some(length) => length,
            None => default_length(embodiment, &variant)?,
        };
        let mapping = fields.map("observation_mapping")?;
        if embodiment.name == "custom" && mapping.as_ref().is_none_or(Map::is_empty) {
            let wanted = "expected the server's names with openpi_embodiment_adapter custom";
            return Err(argument("observation_mapping", "missing", wanted));
        }
        let server = PolicyServer::read(
            &mut fields,
            Defaults {
                scheme: "ws",
                port: 8000,
                timeout: TIMEOUT,
            },
        )?;
        let settings = Self {
            notes: server.notes_on_devices(config),
            server,
            embodiment,
            variant,
            chunk_length,
            language: fields
                .string("language_instruction")?
                .filter(|text| !text.is_empty()),
            cameras: fields.strings("pov_cam_name_sim")?,
            mapping,
            picture: fields.edges("target_image_size")?.unwrap_or(PICTURE),
            connections: fields.count("remote_connections")?.unwrap_or(CONNECTIONS),
        };
        fields.finish()?;
        Ok(settings)
    }
}

/// Returns the default chunk length: `open_loop_horizon` of Arena's adapter for DROID,
/// `replan_steps` of openpi's LIBERO example.
fn default_length(embodiment: &OpenpiEmbodiment, variant: &str) -> Result<usize, PolicyError> {
    match (embodiment.name, variant) {
        ("droid", "pi05") => Ok(15),
        ("droid", "pi0" | "pi0_fast") => Ok(10),
        ("libero", _) => Ok(5),
        ("droid", _) => {
            let wanted = "expected one of pi05, pi0, pi0_fast, or action_chunk_length";
            Err(argument("policy_variant", &format!("{variant:?}"), wanted))
        }
        (name, _) => {
            let wanted = format!(
                "expected the number of actions to execute with openpi_embodiment_adapter {name}"
            );
            Err(argument("action_chunk_length", "missing", &wanted))
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
