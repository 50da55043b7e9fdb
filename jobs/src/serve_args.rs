//! The command line of `serve`. Launcher and ranks share it: the launcher checks it, and the ranks
//! run it.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use serde_json::{Map, Value};

use crate::eval_args::with_dashes;
use crate::usage::{plain, with_negative_values};

/// Serve a policy to robots and simulators with GR00T's ZeroMQ protocol, and openpi's and
/// vla-eval's websocket protocols, on one port per rank.
///
/// Requests of several clients are inferred together. `GET /healthz` and `GET /metrics` are served
/// on the same port. SIGTERM or the endpoint `kill` stops the server once it has answered all
/// received requests.
#[derive(Clone, Debug, Parser)]
#[command(name = "serve", bin_name = "rrun serve", max_term_width = 100)]
pub struct ServeArgs {
    /// Folder of a GR00T checkpoint, policy_type of a job, or JSON: {"policy_type": …,
    /// "policy_config_dict": {…}}
    #[arg(long, value_name = "POLICY")]
    pub policy: String,

    /// policy_config_dict of a job, which overrides that of --policy: JSON, or a JSON file
    #[arg(long, value_name = "JSON")]
    pub policy_config: Option<String>,

    /// Address to listen on
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "0.0.0.0",
        help_heading = "Clients"
    )]
    pub host: IpAddr,

    /// Port of local rank 0; local rank 1 uses the next one, and so on; 0 picks any free port
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 5555,
        help_heading = "Clients"
    )]
    pub port: u16,

    /// Protocols to serve; the first byte of a connection tells which one it uses
    #[arg(
        long,
        value_enum,
        value_name = "NAME",
        default_value_t,
        help_heading = "Clients"
    )]
    pub protocol: Protocol,

    /// Token that clients must send: `api_token` in a ZeroMQ request, `Authorization: Api-Key …` on
    /// a websocket; prefer the variable, since other users can read command lines
    #[arg(
        long,
        value_name = "TOKEN",
        env = TOKEN_VARIABLE,
        hide_env_values = true,
        value_parser = token,
        help_heading = "Clients"
    )]
    pub api_token: Option<String>,

    /// Array encoding for ZeroMQ clients that have not sent any array yet: `kind` (GR00T N1.7 since
    /// 2026-05-07) or `npy` (before)
    #[arg(
        long,
        value_enum,
        value_name = "FORM",
        default_value_t,
        help_heading = "Clients"
    )]
    pub arrays: Arrays,

    /// Refuse the endpoint `kill`
    #[arg(long, help_heading = "Clients")]
    pub ignore_kill: bool,

    /// Maximum number of connections; the one silent for longest is closed to make room
    #[arg(long, value_name = "N", default_value_t = 1024, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65536))]
    pub max_connections: usize,

    /// Maximum size of a request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=2048))]
    pub max_message: usize,

    /// Maximum memory for all requests that are being received or wait for their answer, in MiB
    /// [default: 16 times --max-message]
    #[arg(long, value_name = "MIB", help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    pub max_memory: Option<usize>,

    /// Maximum amount that a connection may send before it has shown the token of --api-token, in
    /// MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=2048))]
    pub max_unauthenticated: usize,

    /// Maximum number of observations per request; more than --max-batch are inferred in parts,
    /// with other requests in between
    #[arg(long, value_name = "N", default_value_t = 256, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=65536))]
    pub max_rows: usize,

    /// Maximum length of an instruction, in bytes of UTF-8
    #[arg(long, value_name = "BYTES", default_value_t = 2048, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1 << 20))]
    pub max_prompt: usize,

    /// Maximum edge length of an image, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 4096, help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=32768))]
    pub max_picture: usize,

    /// Maximum number of observations per inference; with 1, actions do not depend on which
    /// requests share a batch, to the last bit [default: 1 on a CPU, 32 on a GPU]
    #[arg(long, value_name = "N", help_heading = "Batching",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub max_batch: Option<usize>,

    /// Maximum time that a request waits for those of other recently active clients, in
    /// milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5, help_heading = "Batching",
          value_parser = clap::value_parser!(u64).range(..=60_000))]
    pub max_wait: u64,

    /// Number of actions of a chunk that vla-eval's clients get, one for each observation, before
    /// the next inference [default: all]
    #[arg(long, value_name = "N", help_heading = "Clients",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub chunk_size: Option<usize>,

    /// Pin the policy to one GPU (single local rank only; several use LOCAL_RANK)
    #[arg(
        long,
        value_name = "N",
        help_heading = "Devices",
        allow_negative_numbers = true
    )]
    pub policy_device_id: Option<i64>,

    /// Device of the policy: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", help_heading = "Devices")]
    pub policy_device: Option<String>,
}

/// Default memory for requests, in messages of the maximum size.
const MESSAGES_IN_MEMORY: usize = 16;

/// Protocols that a server accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// GR00T's clients.
    Zmq,
    /// openpi's and vla-eval's clients.
    Websocket,
    /// Both.
    #[default]
    Both,
}

/// The two forms of arrays that GR00T's clients have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrays {
    /// Maps with binary keys.
    #[default]
    Kind,
    /// npy files.
    Npy,
}

/// A policy as in a job.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyChoice {
    /// Registered policy name, `policy_type` of a job.
    pub policy_type: String,
    /// Settings of the policy, `policy_config_dict` of a job.
    pub config: Map<String, Value>,
}

/// The environment variable with the token of `--api-token`.
pub const TOKEN_VARIABLE: &str = "RRUN_API_TOKEN";

/// The token of `--api-token` is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is empty; omit it to allow everyone")]
struct EmptyToken;

/// Why `--policy` or `--policy-config` does not name a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyChoiceError {
    /// The file of `--policy-config` cannot be read.
    #[error("--policy-config `{path}`: {err}")]
    Read {
        /// Path of the file.
        path: String,
        /// The error of the file system.
        err: std::io::Error,
    },
    /// A value is not a JSON object.
    #[error("{option}: not a JSON object: {err}")]
    Json {
        /// The option.
        option: &'static str,
        /// The error of the parser.
        err: serde_json::Error,
    },
    /// The object has a field that no policy has.
    #[error("--policy has unknown field `{field}`, expected policy_type and policy_config_dict")]
    UnknownField {
        /// Name of the field.
        field: String,
    },
    /// A field of the object is missing or has another type.
    #[error("--policy: expected a string `policy_type` and an object `policy_config_dict`")]
    Incomplete,
}

/// There is no port for a local rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("--port {port} leaves no port for local rank {local_rank}")]
pub struct PortError {
    /// The port of local rank 0.
    pub port: u16,
    /// The local rank.
    pub local_rank: usize,
}

/// Refuses an empty token, which would disable the check and admit clients that should be refused.
fn token(text: &str) -> Result<String, EmptyToken> {
    if text.is_empty() {
        Err(EmptyToken)
    } else {
        Ok(text.to_owned())
    }
}

/// Removes `--api-token` and its value from the arguments after `serve`. Every user of a machine
/// can read the arguments of a process, but only its owner can read its environment variables.
/// Returns `None` if there is no such option.
pub fn take_token(words: &[OsString]) -> Option<(Vec<OsString>, OsString)> {
    let (mut left, mut token) = (Vec::new(), None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let dashed = with_dashes(word);
        match dashed.as_encoded_bytes().strip_prefix(b"--api-token") {
            // Without a value, clap refuses the arguments as they are.
            Some(b"") => token = Some(words.next()?.clone()),
            Some([b'=', ..]) => token = Some(word.to_str()?.split_once('=')?.1.into()),
            _ => left.push(word.clone()),
        }
    }
    Some((left, token?))
}

impl ServeArgs {
    /// Parses the arguments after `serve`.
    ///
    /// # Errors
    /// Returns clap's error, also for `--help`; its `exit_code` and text are to be used.
    pub fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let name = std::iter::once(OsString::from("serve"));
        let words = name.chain(words.iter().map(|word| with_dashes(word)));
        let mut options = with_negative_values(Self::command());
        let named = |word: &str| Path::new(word).exists().then(|| "--policy".to_owned());
        let matches = options
            .try_get_matches_from_mut(words)
            .map_err(|err| plain(err, &mut options, named))?;
        Self::from_arg_matches(&matches)
    }

    /// Returns the policy of `--policy` and `--policy-config`.
    ///
    /// # Errors
    /// Returns an error with the name of the option if its value is not a JSON object of the
    /// expected form.
    pub fn choice(&self) -> Result<PolicyChoice, PolicyChoiceError> {
        let mut choice = chosen(&self.policy)?;
        if let Some(text) = &self.policy_config {
            let json = if text.trim_start().starts_with('{') {
                text.clone()
            } else {
                std::fs::read_to_string(text).map_err(|err| PolicyChoiceError::Read {
                    path: text.clone(),
                    err,
                })?
            };
            choice.config.extend(object("--policy-config", &json)?);
        }
        Ok(choice)
    }

    /// Returns the memory for all requests in MiB.
    pub fn memory(&self) -> usize {
        self.max_memory
            .unwrap_or(MESSAGES_IN_MEMORY * self.max_message)
            .max(self.max_message)
    }

    /// Returns how long a request waits for other requests.
    pub fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait)
    }

    /// Returns the port of a local rank.
    ///
    /// # Errors
    /// Returns an error if the number exceeds the last port.
    pub fn port_of(&self, local_rank: usize) -> Result<u16, PortError> {
        let port = u16::try_from(local_rank)
            .ok()
            .and_then(|rank| self.port.checked_add(rank));
        match self.port {
            0 => Ok(0),
            _ => port.ok_or(PortError {
                port: self.port,
                local_rank,
            }),
        }
    }
}

fn chosen(policy: &str) -> Result<PolicyChoice, PolicyChoiceError> {
    if Path::new(policy).is_dir() {
        let config = Map::from_iter([("model_path".to_owned(), policy.into())]);
        return Ok(PolicyChoice {
            policy_type: "gr00t".to_owned(),
            config,
        });
    }
    if !policy.trim_start().starts_with('{') {
        return Ok(PolicyChoice {
            policy_type: policy.to_owned(),
            config: Map::new(),
        });
    }
    let mut job = object("--policy", policy)?;
    let config = job
        .remove("policy_config_dict")
        .unwrap_or_else(|| Map::new().into());
    match (job.remove("policy_type"), config, job.keys().next()) {
        (_, _, Some(field)) => Err(PolicyChoiceError::UnknownField {
            field: field.clone(),
        }),
        (Some(Value::String(policy_type)), Value::Object(config), None) => Ok(PolicyChoice {
            policy_type,
            config,
        }),
        _ => Err(PolicyChoiceError::Incomplete),
    }
}

fn object(option: &'static str, text: &str) -> Result<Map<String, Value>, PolicyChoiceError> {
    serde_json::from_str(text).map_err(|err| PolicyChoiceError::Json { option, err })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use serde_json::json;

    fn parse(words: &[&str]) -> Result<ServeArgs, clap::Error> {
        ServeArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
    }

    #[test]
    fn a_folder_is_a_checkpoint_and_a_word_a_type() {
        let choice = |words: &[&str]| parse(words).unwrap().choice().unwrap();
        let folder = choice(&[
            "--policy",
            "/tmp",
            "--policy_config",
            r#"{"dtype": "float32"}"#,
        ]);
        assert_eq!(folder.policy_type, "gr00t");
        assert_eq!(
            Value::Object(folder.config),
            json!({"model_path": "/tmp", "dtype": "float32"})
        );
        let job =
            r#"{"policy_type": "gr00t_closedloop", "policy_config_dict": {"model_path": "/m"}}"#;
        let job = choice(&["--policy", job]);
        assert_eq!(
            (job.policy_type.as_str(), Value::Object(job.config)),
            ("gr00t_closedloop", json!({"model_path": "/m"}))
        );
        assert_eq!(choice(&["--policy", "scripted"]).policy_type, "scripted");
    }

    #[test]
    fn a_token_is_taken_out_of_the_words() {
        let taken = |words: &[&str]| {
            let (left, token) = take_token(&words.iter().map(OsString::from).collect::<Vec<_>>())?;
            Some((
                left.join(OsStr::new(" ")).into_string().unwrap(),
                token.into_string().unwrap(),
            ))
        };
        let wanted = Some(("--policy gr00t --port 1".to_owned(), "s3cret".to_owned()));
        assert_eq!(
            taken(&["--policy", "gr00t", "--api-token", "s3cret", "--port", "1"]),
            wanted
        );
        assert_eq!(
            taken(&["--policy", "gr00t", "--port", "1", "--api_token=s3cret"]),
            wanted
        );
        assert_eq!(taken(&["--policy", "gr00t"]), None);
        assert_eq!(taken(&["--policy", "gr00t", "--api-token"]), None);
    }

    #[test]
    fn an_empty_token_is_refused_and_does_not_let_everybody_in() {
        let told = parse(&["--policy", "gr00t", "--api-token", ""])
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("it is empty; omit it to allow everyone"),
            "{told}"
        );
    }

    #[test]
    fn what_is_no_policy_is_refused_by_name() {
        let refusal = |words: &[&str]| parse(words).unwrap().choice().unwrap_err().to_string();
        assert!(refusal(&["--policy", "{"]).starts_with("--policy: not a JSON object"));
        assert!(
            refusal(&["--policy", r#"{"policy": 1}"#])
                .contains("--policy has unknown field `policy`")
        );
        assert!(
            refusal(&["--policy", "gr00t", "--policy-config", "/nowhere"])
                .contains("`/nowhere`: No such file")
        );
        assert!(
            parse(&[])
                .unwrap_err()
                .to_string()
                .contains("--policy <POLICY>")
        );
        assert!(
            parse(&["/tmp"])
                .unwrap_err()
                .to_string()
                .contains("`/tmp` has no option; write `--policy /tmp`")
        );
    }

    #[test]
    fn the_memory_holds_a_message_at_least() {
        let memory = |words: &[&str]| {
            parse(&[&["--policy", "gr00t"], words].concat())
                .unwrap()
                .memory()
        };
        assert_eq!(memory(&[]), 1024);
        assert_eq!(memory(&["--max-message", "2", "--max-memory", "100"]), 100);
        assert_eq!(memory(&["--max-message", "80", "--max-memory", "1"]), 80);
    }

    #[test]
    fn every_local_rank_has_its_port() {
        let args = parse(&["--policy", "gr00t", "--port", "65534"]).unwrap();
        assert_eq!(
            (args.port_of(1), args.port_of(2).is_err()),
            (Ok(65535), true)
        );
        assert_eq!(
            parse(&["--policy", "gr00t", "--port", "0"])
                .unwrap()
                .port_of(7),
            Ok(0)
        );
    }
}
