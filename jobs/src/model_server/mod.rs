//! `model_server` of a jobs file or configuration: a program that `rrun` keeps running beside the
//! ranks of a node.
//!
//! ```json
//! {"model_server": {"command": ["vllm", "serve", "Qwen/Qwen2.5-VL-7B-Instruct", "--port", "8000"],
//!                   "health_url": "http://127.0.0.1:8000/health", "devices": [0]},
//!  "jobs": […]}
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Display, Formatter};
use std::net::Ipv6Addr;
use std::path::PathBuf;

use http::Uri;
use http::uri::InvalidUri;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Number, Value};

use crate::refusal::Refusal;
use crate::settings;
use crate::settings::kinds::{OneOrMany, Port, Seconds, TextOrTexts, number};
use crate::tree::object;

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
    Ok(match TextOrTexts::deserialize(from)? {
        TextOrTexts::Text(line) if line.trim().is_empty() => Vec::new(),
        TextOrTexts::Text(line) => vec!["/bin/sh".to_owned(), "-c".to_owned(), line],
        TextOrTexts::Texts(words) => words,
    })
}

/// Reads the field of a file; returns `None` if it is `null`.
///
/// # Errors
/// Refuses the first problem found.
pub(crate) fn read(value: &Value) -> Result<Option<ModelServer>, Refusal> {
    if value.is_null() {
        return Ok(None);
    }
    let server: ModelServer = settings::read(FIELD, object(FIELD, value)?)?;
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

/// How to check that a server works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "Written", into = "Written")]
#[schemars(with = "Written")]
pub enum Health {
    /// The server answers a GET of this URL with a status of 200 to 299.
    Url(HealthUrl),
    /// The server accepts connections on this port of the machine.
    Port(u16),
}

/// The parts of a URL `http://host[:port][/path]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthUrl {
    /// Host name or address; an IPv6 address is without brackets.
    pub host: String,
    /// Port; 80 if none is given.
    pub port: u16,
    /// Path with query, from the `/` on.
    pub path: String,
}

impl HealthUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// Refuses what cannot be requested, with the reason.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let wanted = "expected http://HOST[:PORT][/PATH]";
        let wrong = |err: InvalidUri| Refusal::new(format_args!("{err}, {wanted}"));
        let url: Uri = text.parse().map_err(wrong)?;
        let place = url.authority().map_or("", |authority| authority.as_str());
        let is_ipv6 = |(host, _): &(&str, &str)| host.parse::<Ipv6Addr>().is_ok();
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => rest.split_once(']').filter(is_ipv6).unwrap_or_default(),
            None => place.split_at(place.find(':').unwrap_or(place.len())),
        };
        let port = match port.strip_prefix(':') {
            // `parse` alone would accept a sign.
            Some(digits) if !digits.starts_with('+') => digits.parse().unwrap_or(0),
            None if port.is_empty() => 80,
            _ => 0,
        };
        // The parser accepts some of them in a path.
        let is_blank = |letter: char| letter.is_whitespace() || letter.is_control();
        let reason = if !text.starts_with("http://") {
            "it does not start with http://, the only supported scheme"
        } else if text.contains(is_blank) {
            "it has a blank or a control character"
        } else if place.contains('@') {
            "it has a user name, which is not sent"
        } else if host.is_empty() || host.contains(['[', ']']) {
            "it has no host, or no IPv6 address in its brackets"
        } else if port == 0 {
            "its port is not a number from 1 to 65535"
        } else {
            let path = url.path_and_query().map(ToString::to_string);
            let (host, path) = (host.to_owned(), path.unwrap_or("/".to_owned()));
            return Ok(Self { host, port, path });
        };
        Err(Refusal::new(reason))
    }

    /// Returns host and port as they are written in a URL.
    pub fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') {
            format!("[{host}]:{port}")
        } else {
            format!("{host}:{port}")
        }
    }
}

/// The fields of a model server.
#[derive(Serialize, Deserialize, JsonSchema)]
struct Written {
    /// a GET of this URL is answered with a status of 200 to 299
    #[serde(skip_serializing_if = "Option::is_none")]
    health_url: Option<String>,
    /// this port of the machine accepts connections
    #[serde(skip_serializing_if = "Option::is_none")]
    health_port: Option<Port>,
}

impl TryFrom<Written> for Health {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match (written.health_url, written.health_port) {
            (Some(url), None) => HealthUrl::parse(&url).map(Self::Url).map_err(|reason| {
                let url = url.escape_debug();
                format!("health_url `{url}` cannot be polled: {reason}")
            }),
            (None, Some(Port(port))) => Ok(Self::Port(port)),
            (Some(_), Some(_)) => {
                Err("health_url and health_port are both given; keep one of them".to_owned())
            }
            (None, None) => Err(
                "health_url and health_port are both missing; one of them is required to see \
                 when the server is ready"
                    .to_owned(),
            ),
        }
    }
}

impl From<Health> for Written {
    fn from(health: Health) -> Self {
        let (health_url, health_port) = match &health {
            Health::Url(_) => (Some(health.to_string()), None),
            Health::Port(port) => (None, Some(Port(*port))),
        };
        Self {
            health_url,
            health_port,
        }
    }
}

impl Display for Health {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Url(url) => write!(f, "http://{}{}", url.authority(), url.path),
            Self::Port(port) => write!(f, "port {port}"),
        }
    }
}

#[cfg(test)]
mod tests;
