//! Reads a job's settings of a policy on a model server of vla-eval.

use std::time::Duration;

use jobs::policies::{self, VlaEval};
use serde_json::{Map, Value};

use crate::policy::PolicyError;
use crate::policy::remote::PolicyServer;

/// Default timeout. vla-eval's own client waits 30 s; the first inference of a server compiles its
/// network.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The settings of a job's policy on a model server of vla-eval.
#[derive(Debug)]
pub struct VlaEvalSettings {
    /// The server: its address and how to talk to it.
    pub server: PolicyServer,
    /// Cameras and states of the environment for each key of an observation.
    pub mapping: Option<Map<String, Value>>,
    /// Height and width of the pictures that are sent, in pixels; as rendered if not given.
    pub picture: Option<[usize; 2]>,
    /// Number of actions of an answer that are executed. `None` means one, from a server that sends
    /// one.
    pub chunk_length: Option<usize>,
    /// What else the server is told of the task when an episode begins.
    pub task: Map<String, Value>,
    /// The instruction to use if neither job nor environment has one.
    pub language: Option<String>,
    /// Notes for the user on fields of the job that have no effect.
    pub notes: Vec<String>,
}

impl VlaEvalSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// Returns an error with the name of the field.
    pub fn read(config: &Map<String, Value>) -> Result<Self, PolicyError> {
        let given: VlaEval = policies::read(config)?;
        let server = PolicyServer::websocket(given.websocket, 8000, TIMEOUT)?;
        Ok(Self {
            notes: server.notes_on_devices(config),
            server,
            mapping: given.observation_mapping,
            picture: given.target_image_size.map(|size| size.0),
            chunk_length: given.action_chunk_length.map(usize::from),
            task: given.task.unwrap_or_default(),
            language: given.language_instruction.filter(|text| !text.is_empty()),
        })
    }
}
