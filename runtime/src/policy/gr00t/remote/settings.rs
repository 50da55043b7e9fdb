//! Reads a job's settings of a GR00T policy on a server: `policy_config_dict`, merged over the YAML
//! file that it may name.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::gr00t::joints::Joints;
use crate::policy::gr00t::settings::SEED;
use crate::policy::remote::{Defaults, PolicyServer};
use jobs::policies::{PolicyType, SettingsReader, YAML};

/// Default timeout of GR00T's client.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Fields of Arena's files that the server decides, because it has the checkpoint.
const OF_THE_SERVER: &[&str] = &[
    "model_path",
    "vlm_path",
    "embodiment_tag",
    "denoising_steps",
    "dtype",
    "batching",
];

/// The settings of a job's GR00T policy on a server.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteSettings {
    /// The server: its address and how to talk to it.
    pub server: PolicyServer,
    /// Number of actions of a chunk that may be used, at most that of the server.
    pub action_horizon: Option<usize>,
    /// Number of actions of a chunk that are executed.
    pub chunk_length: Option<usize>,
    /// The instruction to use if neither job nor environment has one.
    pub language: Option<String>,
    /// Cameras of the environment in the order of the server's video keys; matched by name if not
    /// given.
    pub cameras: Option<Vec<String>>,
    /// Joints of the simulator by name, for robots whose state is one vector.
    pub joints: Option<Joints>,
    /// Seed of the noise, sent to servers of this project as `options.noise_seeds`; nothing is sent
    /// without one.
    pub seed: Option<u64>,
    /// Path of the YAML file.
    pub file: Option<PathBuf>,
    /// Notes for the user on fields of the job that have no effect.
    pub notes: Vec<String>,
}

impl RemoteSettings {
    /// Reads the settings and the files that they name.
    ///
    /// # Errors
    /// Returns [`PolicyError::Setting`] or [`PolicyError::File`] for a wrong field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let mut fields = SettingsReader::new(PolicyType::Gr00tRemote, config);
        let file = fields.path(YAML)?;
        if let Some(file) = &file {
            fields.under(file)?;
        }
        let (action_horizon, chunk_length) = fields.horizon_and_chunk_length()?;
        let server = PolicyServer::read(
            &mut fields,
            Defaults {
                scheme: "tcp",
                port: 5555,
                timeout: TIMEOUT,
            },
        )?;
        let mut notes = without_effect(config, &server);
        if fields.one_of("scheduler", &[("chunk", false), ("synced_batch", true)])? == Some(true) {
            notes.push(
                "scheduler synced_batch is treated as chunk: environments that need a chunk at the \
                 same time share a request, and none waits for others"
                    .to_owned(),
            );
        }
        let seed = fields.whole("seed")?.unwrap_or(SEED);
        let tells_seeds = fields.flag("remote_noise_seeds")?.unwrap_or(true);
        let settings = Self {
            server,
            action_horizon,
            chunk_length,
            language: fields
                .string("language_instruction")?
                .filter(|text| !text.is_empty()),
            cameras: fields.strings("pov_cam_name_sim")?,
            joints: Joints::read(&mut fields)?,
            seed: tells_seeds.then_some(seed),
            file,
            notes,
        };
        fields.finish()?;
        Ok(settings)
    }
}

/// Returns notes on the fields that only matter for a policy in this process.
fn without_effect(config: &Map<String, Value>, server: &PolicyServer) -> Vec<String> {
    let here = ["policy_device", "policy_device_id"]
        .iter()
        .chain(OF_THE_SERVER);
    let said: Vec<&str> = here
        .copied()
        .filter(|field| config.contains_key(*field))
        .collect();
    match said.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "no effect of {}: the policy is at {server}",
            said.join(", ")
        )],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value) -> RemoteSettings {
        RemoteSettings::read(config.as_object().unwrap()).unwrap()
    }

    #[test]
    fn arenas_fields_are_read_and_what_the_server_decides_is_said() {
        let settings = read(&json!({
            "remote_host": "gpu7", "remote_port": 5556, "remote_api_token": "x", "scheduler": "synced_batch",
            "policy_device": "cuda:0", "model_path": "nvidia/GR00T-N1.7-3B", "num_envs": 4,
        }));
        assert_eq!(settings.server.to_string(), "tcp://gpu7:5556");
        assert_eq!(settings.server.timeout, TIMEOUT);
        let note = "no effect of policy_device, model_path: the policy is at tcp://gpu7:5556";
        assert_eq!(settings.notes[0], note);
        assert!(settings.notes[1].starts_with("scheduler synced_batch is treated as chunk"));
        assert_eq!(settings.seed, Some(SEED));
        assert_eq!(read(&json!({"remote_noise_seeds": false})).seed, None);
    }
}
