//! `model_server` of a jobs file or configuration: a program that `rrun` keeps running beside the
//! ranks of a node.
//!
//! ```json
//! {"model_server": {"command": ["vllm", "serve", "Qwen/Qwen2.5-VL-7B-Instruct", "--port", "8000"],
//!                   "health_url": "http://127.0.0.1:8000/health", "devices": [0]},
//!  "jobs": […]}
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::fields::{FieldError, FileFields};

mod health;

pub use health::{Health, HealthUrl};

/// Name of the field.
pub(crate) const FIELD: &str = "model_server";

/// The variable that tells a process which GPUs it may use; `devices` sets it.
pub const DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Default time until the server must answer. Weights of 70 GB take about that long from a network
/// disk.
const START_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Maximum start timeout in seconds: a day.
const LONGEST_START: u64 = 86_400;

/// Default number of restarts of a server that has worked before.
const MAX_RESTARTS: u32 = 3;

/// Maximum number of restarts; a larger number is taken for a typo.
const MOST_RESTARTS: u64 = 1000;

/// Default time from SIGTERM to SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum stop timeout in seconds.
const LONGEST_STOP: u64 = 3600;

/// A program that is started once per node, before its ranks, and stopped after them. In a plan it
/// is written as in a jobs file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelServer {
    /// Program and arguments, at least the program.
    pub command: Vec<String>,
    /// How to check that the server works.
    pub health: Health,
    /// Indices among the GPUs that `rrun` sees; `None` means all of them.
    pub devices: Option<Vec<usize>>,
    /// Environment variables, in addition to those of `rrun`.
    pub env: BTreeMap<String, String>,
    /// Working directory; `None` means that of `rrun`.
    pub cwd: Option<PathBuf>,
    /// Time from a start until the server must answer.
    pub start_timeout: Duration,
    /// How often a server that has worked is restarted.
    pub max_restarts: u32,
    /// Time from SIGTERM to SIGKILL.
    pub stop_timeout: Duration,
}

const FIELDS: &[&str] = &[
    "command",
    "health_url",
    "health_port",
    "devices",
    "env",
    "cwd",
    "start_timeout",
    "max_restarts",
    "stop_timeout",
];

/// Takes the `model_server` field of a file; returns `None` if it is missing or `null`.
///
/// # Errors
/// Returns [`FieldError`] for the first problem found.
pub(crate) fn take(top: &mut FileFields) -> Result<Option<ModelServer>, FieldError> {
    match top.take(FIELD) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => parse(value).map(Some),
    }
}

impl Serialize for ModelServer {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.entry().serialize(to)
    }
}

impl ModelServer {
    /// Returns the field of a jobs file from which [`take`] makes the same server.
    pub(crate) fn entry(&self) -> Value {
        let Self {
            command,
            health,
            devices,
            env,
            cwd,
            start_timeout,
            max_restarts,
            stop_timeout,
        } = self;
        let mut entry = json!({
            "command": command,
            "start_timeout": start_timeout.as_secs(),
            "max_restarts": max_restarts,
            "stop_timeout": stop_timeout.as_secs(),
        });
        match health {
            Health::Url(_) => entry["health_url"] = health.to_string().into(),
            Health::Port(port) => entry["health_port"] = (*port).into(),
        }
        if let Some(devices) = devices {
            entry["devices"] = json!(devices);
        }
        if !env.is_empty() {
            entry["env"] = json!(env);
        }
        if let Some(cwd) = cwd {
            entry["cwd"] = cwd.to_string_lossy().into();
        }
        entry
    }
}

/// Reads the field of a file.
///
/// # Errors
/// Returns [`FieldError`] for the first problem found.
pub(crate) fn parse(value: &Value) -> Result<ModelServer, FieldError> {
    let mut fields = FileFields::new(FIELD, value)?;
    let command = command(&mut fields)?;
    let health = health::read(&mut fields)?;
    let devices = devices(&mut fields)?;
    let env = env(&mut fields, devices.is_some())?;
    let cwd = fields.optional_string("cwd")?;
    if cwd
        .as_deref()
        .is_some_and(|cwd| cwd.is_empty() || cwd.contains('\0'))
    {
        return Err(fields.refuse("cwd", "it is not a path"));
    }
    let seconds =
        |fields: &mut FileFields, field, limit, default| -> Result<Duration, FieldError> {
            Ok(fields
                .at_most(field, limit)?
                .map_or(default, Duration::from_secs))
        };
    let start_timeout = seconds(&mut fields, "start_timeout", LONGEST_START, START_TIMEOUT)?;
    let stop_timeout = seconds(&mut fields, "stop_timeout", LONGEST_STOP, STOP_TIMEOUT)?;
    let max_restarts = max_restarts(&mut fields)?;
    fields.finish(FIELDS)?;
    Ok(ModelServer {
        command,
        health,
        devices,
        env,
        cwd: cwd.map(Into::into),
        start_timeout,
        max_restarts,
        stop_timeout,
    })
}

/// Returns the command: a list of words, or a text for the shell.
fn command(fields: &mut FileFields) -> Result<Vec<String>, FieldError> {
    let wanted = "expected a list of words or a command line for /bin/sh";
    let command = match fields.require("command")? {
        Value::String(line) if !line.trim().is_empty() => {
            ["/bin/sh", "-c", line].map(str::to_owned).to_vec()
        }
        Value::Array(words) if !words.is_empty() => {
            let word = |word: &Value| word.as_str().map(str::to_owned);
            words
                .iter()
                .map(word)
                .collect::<Option<Vec<_>>>()
                .ok_or_else(|| {
                    fields.refuse(
                        "command",
                        "a word of the list is not a string; write numbers as \"8000\"",
                    )
                })?
        }
        other => return Err(fields.wrong("command", Some(other), wanted)),
    };
    if command[0].is_empty() || command.iter().any(|word| word.contains('\0')) {
        return Err(fields.refuse(
            "command",
            "the program is empty, or a word has a null character",
        ));
    }
    Ok(command)
}

fn devices(fields: &mut FileFields) -> Result<Option<Vec<usize>>, FieldError> {
    let wanted = "expected a list of GPU indices, for example [0, 1]";
    let items = match fields.take("devices") {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Array(items)) => items,
        other => return Err(fields.wrong("devices", other, wanted)),
    };
    let mut devices = Vec::new();
    for item in items {
        let device = item.as_u64().and_then(|index| usize::try_from(index).ok());
        let device = device.ok_or_else(|| fields.wrong("devices", Some(item), wanted))?;
        if devices.contains(&device) {
            return Err(fields.refuse("devices", &format!("GPU {device} is listed twice")));
        }
        devices.push(device);
    }
    Ok(Some(devices))
}

fn env(fields: &mut FileFields, has_devices: bool) -> Result<BTreeMap<String, String>, FieldError> {
    let mut variables = BTreeMap::new();
    for (name, value) in fields.object("env")?.unwrap_or_default() {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(fields.refuse(
                "env",
                &format!("`{}` is not the name of a variable", name.escape_debug()),
            ));
        }
        if has_devices && name == DEVICES_VARIABLE {
            return Err(fields.refuse(
                "env",
                &format!("{name} is also set by `devices`; keep one of them"),
            ));
        }
        let text = match value {
            Value::String(text) if !text.contains('\0') => text,
            Value::Number(number) => number.to_string(),
            other => {
                let found = format!("{name}: found {other}, expected a string or a number");
                return Err(fields.refuse("env", &found));
            }
        };
        variables.insert(name, text);
    }
    Ok(variables)
}

fn max_restarts(fields: &mut FileFields) -> Result<u32, FieldError> {
    let Some(found) = fields.whole("max_restarts")? else {
        return Ok(MAX_RESTARTS);
    };
    let restarts = u32::try_from(found).ok().filter(|_| found <= MOST_RESTARTS);
    restarts.ok_or_else(|| {
        fields.refuse(
            "max_restarts",
            &format!("found {found}, expected a whole number up to {MOST_RESTARTS}"),
        )
    })
}

#[cfg(test)]
mod tests;
