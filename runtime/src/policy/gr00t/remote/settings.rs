//! Reads a job's settings of a GR00T policy on a server: `policy_config_dict`, merged over the YAML
//! file that it may name.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::gr00t::settings::lengths;
use crate::policy::remote::{Defaults, PolicyServer};
use jobs::policies::{self, Gr00tRemote, Scheduler};
use jobs::wiring::Joints;

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
    /// The files that the settings name.
    pub files: Vec<PathBuf>,
    /// Notes for the user on fields of the job that have no effect.
    pub notes: Vec<String>,
}

impl RemoteSettings {
    /// Reads the settings and the files that they name.
    ///
    /// # Errors
    /// Returns an error for a wrong field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: Gr00tRemote = policies::read(config)?;
        let wiring = given.wiring;
        let joints = Joints::read(&wiring)?;
        let (action_horizon, chunk_length) = lengths(&wiring)?;
        let defaults = Defaults {
            scheme: "tcp",
            port: 5555,
            timeout: TIMEOUT,
        };
        let server = PolicyServer::new(given.server, None, defaults)?;
        let mut notes = without_effect(config, &server);
        if given.scheduler == Scheduler::SyncedBatch {
            notes.push(
                "scheduler synced_batch is treated as chunk: environments that need a chunk at the \
                 same time share a request, and none waits for others"
                    .to_owned(),
            );
        }
        Ok(Self {
            files: wiring.files().cloned().collect(),
            server,
            action_horizon,
            chunk_length,
            language: wiring.language_instruction.filter(|text| !text.is_empty()),
            cameras: wiring.pov_cam_name_sim.map(|names| names.0),
            joints,
            seed: given.remote_noise_seeds.then_some(wiring.seed),
            notes,
        })
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
        assert_eq!(settings.seed, Some(10));
        assert_eq!(read(&json!({"remote_noise_seeds": false})).seed, None);
    }
}
