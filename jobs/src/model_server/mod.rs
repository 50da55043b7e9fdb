//! `model_server` of a jobs file or configuration: a program that `rrun` keeps running beside the
//! ranks of a node.
//!
//! ```json
//! {"model_server": {"command": ["vllm", "serve", "Qwen/Qwen2.5-VL-7B-Instruct", "--port", "8000"],
//!                   "health_url": "http://127.0.0.1:8000/health", "devices": [0]},
//!  "jobs": […]}
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use crate::refusal::Refusal;
use crate::settings;
use crate::settings::kinds::{OneOrMany, Seconds, number};

mod health;

pub use health::{Health, HealthUrl};

/// Name of the field.
pub(crate) const FIELD: &str = "model_server";

/// The variable that tells a process which GPUs it may use; `devices` sets it.
pub const DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// A program that is started once per node, before its ranks, and stopped after them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ModelServer {
    /// program and arguments; a text is a command line of the shell
    #[serde(deserialize_with = "words")]
    #[schemars(
        with = "OneOrMany",
        extend("wanted" = "a list of words, numbers in quotes, or a command line for /bin/sh")
    )]
    pub command: Vec<String>,
    /// How to check that the server works.
    #[serde(flatten)]
    pub health: Health,
    /// Indices among the GPUs that `rrun` sees; `None` means all of them.
    #[schemars(extend("wanted" = "a list of GPU indices, for example [0, 1]"))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub devices: Option<Vec<usize>>,
    /// Environment variables, in addition to those of `rrun`.
    #[serde(
        default,
        deserialize_with = "texts",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    #[schemars(with = "Option<BTreeMap<String, Text>>")]
    pub env: BTreeMap<String, String>,
    /// Working directory; `None` means that of `rrun`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<PathBuf>,
    /// Time from a start until the server must answer. Weights of 70 GB take about ten minutes from
    /// a network disk.
    #[serde(default = "number::<600, Seconds>")]
    #[schemars(range(min = 1), extend("wanted" = "a number of seconds from 1 to 86400"))]
    pub start_timeout: Seconds,
    /// How often a server that has worked is restarted. A larger number is taken for a typo.
    #[serde(default = "number::<3, u32>")]
    #[schemars(range(min = 0, max = 1000))]
    pub max_restarts: u32,
    /// Time from SIGTERM to SIGKILL.
    #[serde(default = "number::<30, Seconds>")]
    #[schemars(range(min = 1), extend("wanted" = "a number of seconds from 1 to 86400"))]
    pub stop_timeout: Seconds,
}

/// The value of a variable.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Text {
    Text(String),
    Number(Number),
}

fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    let values = BTreeMap::deserialize(from)?.into_iter();
    let text = |(name, value)| match value {
        Text::Text(text) => (name, text),
        Text::Number(number) => (name, number.to_string()),
    };
    Ok(values.map(text).collect())
}

fn words<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Line(String),
        Words(Vec<String>),
    }
    Ok(match Form::deserialize(from)? {
        Form::Line(line) if line.trim().is_empty() => Vec::new(),
        Form::Line(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        Form::Words(words) => words,
    })
}

/// Reads the field of a file; returns `None` if it is `null`.
///
/// # Errors
/// Refuses the first problem found.
pub(crate) fn read(value: &Value) -> Result<Option<ModelServer>, Refusal> {
    let server: ModelServer = match value {
        Value::Null => return Ok(None),
        Value::Object(given) => settings::read(FIELD, given)?,
        other => return Err(Refusal::found(FIELD, other, "expected an object")),
    };
    match server.wrong() {
        Some((field, reason)) => Err(Refusal::at(format_args!("{FIELD}.{field}"), reason)),
        None => Ok(Some(server)),
    }
}

impl ModelServer {
    /// Returns a field that no server can be started with, and why.
    fn wrong(&self) -> Option<(&'static str, String)> {
        let has_null = |text: &str| text.contains('\0');
        let has_program = self
            .command
            .first()
            .is_some_and(|program| !program.is_empty());
        if !has_program || self.command.iter().any(|word| has_null(word)) {
            let reason = "the program is empty, or a word has a null character";
            return Some(("command", reason.to_owned()));
        }
        let mut seen = BTreeSet::new();
        let mut devices = self.devices.iter().flatten();
        if let Some(device) = devices.find(|device| !seen.insert(**device)) {
            return Some(("devices", format!("GPU {device} is listed twice")));
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) || has_null(value) {
                let name = name.escape_debug();
                let reason = format!("`{name}` cannot be a variable with this value");
                return Some(("env", reason));
            }
            if self.devices.is_some() && name == DEVICES_VARIABLE {
                let reason = format!("{name} is also set by `devices`; keep one of them");
                return Some(("env", reason));
            }
        }
        let cwd = self.cwd.as_ref().map(|cwd| cwd.to_string_lossy());
        cwd.filter(|cwd| cwd.is_empty() || has_null(cwd))
            .map(|_| ("cwd", "it is not a path".to_owned()))
    }
}

#[cfg(test)]
mod tests;
