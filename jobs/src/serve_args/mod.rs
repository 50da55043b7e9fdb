//! The command line of `serve`. Launcher and ranks share it: the launcher checks it, and the ranks
//! run it.

mod setup;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{CommandFactory as _, FromArgMatches as _, Parser};

use crate::refusal::Refusal;
use crate::usage::{Examples, Headings, parsed, under, with_dashes, within};

pub use setup::{InterfaceSource, PolicyChoice, ServeSetup};

/// Examples of `serve`.
pub const EXAMPLES: Examples = &[
    (
        "rrun serve --policy CHECKPOINT --environment reach",
        "GR00T, on port 5555",
    ),
    (
        "rrun serve --jobs jobs.json --only reach",
        "the policy of a job",
    ),
    (
        "rrun serve --policy CHECKPOINT --interface robot.json",
        "for a robot",
    ),
    (
        "rrun --nproc-per-node 4 serve --jobs jobs.json --front-port 8000",
        "4 ranks, one port",
    ),
];

/// Headings of the options of `serve`, each with the first option under it.
const HEADINGS: Headings = &[
    ("environment", "Interface"),
    ("host", "Clients"),
    ("max_batch", "Batching"),
    ("policy_device_id", "Devices"),
];

/// Serve a policy to robots and simulators with GR00T's ZeroMQ protocol, and openpi's and
/// vla-eval's websocket protocols, on one port per rank.
///
/// Requests of several clients are inferred together. `GET /healthz` and `GET /metrics` are served
/// on the same port. SIGTERM or the endpoint `kill` stops the server once it has answered all
/// received requests.
#[derive(Clone, Debug, Parser)]
#[command(name = "serve", bin_name = "rrun serve", max_term_width = 100)]
#[command(mut_args = under(HEADINGS))]
pub struct ServeArgs {
    /// Folder of a GR00T checkpoint, policy_type of a job, or JSON: {"policy_type": …,
    /// "policy_config_dict": {…}}
    #[arg(long, value_name = "POLICY", required_unless_present_any = ["jobs", "print_interface"])]
    pub policy: Option<String>,

    /// policy_config_dict of a job, which overrides that of --policy or --jobs: JSON, or a JSON
    /// file
    #[arg(long, value_name = "JSON")]
    pub policy_config: Option<String>,

    /// Jobs file: serve the policy of one of its jobs for the environment of that job
    #[arg(long, value_name = "FILE", conflicts_with_all = ["policy", "environment"])]
    pub jobs: Option<PathBuf>,

    /// Name of the job of --jobs, which a file with one job does not need
    #[arg(long, value_name = "NAME", requires = "jobs")]
    pub only: Option<String>,

    /// Environment whose cameras, states and actions the clients have, as in a job; it is made
    /// once, and no episode runs in it
    #[arg(long, value_name = "NAME", conflicts_with = "interface")]
    pub environment: Option<String>,

    /// Other fields of arena_env_args, as in a job: JSON, or a JSON file
    #[arg(long, value_name = "JSON", requires = "environment")]
    pub env_args: Option<String>,

    /// Cameras, states and actions of the clients, for robots without a simulator: a JSON file
    #[arg(long, value_name = "FILE")]
    pub interface: Option<PathBuf>,

    /// Print the file for --interface that describes the environment, and exit
    #[arg(long)]
    pub print_interface: bool,

    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0")]
    pub host: IpAddr,

    /// Port of local rank 0; local rank 1 uses the next one, and so on; 0 picks any free port
    /// [default: 5555, or the port after --front-port]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,

    /// One port for all ranks of a node: `rrun` gives each connection to the rank that has the
    /// fewest; 0 picks any free port
    #[arg(long, value_name = "PORT")]
    pub front_port: Option<u16>,

    /// Token that clients must send: `api_token` in a ZeroMQ request, `Authorization: Api-Key …` on
    /// a websocket; prefer the variable, since other users can read command lines
    #[arg(
        long,
        value_name = "TOKEN",
        env = TOKEN_VARIABLE,
        hide_env_values = true,
        value_parser = token
    )]
    pub api_token: Option<String>,

    /// Array encoding for ZeroMQ clients that have not sent any array yet: `kind` (GR00T N1.7 since
    /// 2026-05-07) or `npy` (before)
    #[arg(long, value_enum, value_name = "FORM", default_value_t)]
    pub arrays: Arrays,

    /// Refuse the endpoint `kill`
    #[arg(long)]
    pub ignore_kill: bool,

    /// Maximum number of connections; the one silent for longest is closed to make room
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = within(1..=65536))]
    pub max_connections: usize,

    /// Maximum size of a request, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = within(1..=2048))]
    pub max_message: usize,

    /// Maximum number of observations per request; more than --max-batch are inferred in parts,
    /// with other requests in between
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(1..=65536))]
    pub max_rows: usize,

    /// Maximum edge length of an image, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 4096, value_parser = within(1..=32768))]
    pub max_picture: usize,

    /// Number of actions of a chunk that vla-eval's clients get, one for each observation, before
    /// the next inference [default: all]
    #[arg(long, value_name = "N", value_parser = within(1..=4096))]
    pub chunk_size: Option<usize>,

    /// Maximum number of observations per inference; with 1, actions do not depend on which
    /// requests share a batch, to the last bit [default: 1 on a CPU, 32 on a GPU]
    #[arg(long, value_name = "N", value_parser = within(1..=4096))]
    pub max_batch: Option<usize>,

    /// Maximum time that a request waits for those of other recently active clients, in
    /// milliseconds
    #[arg(long, value_name = "MS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(..=60_000))]
    pub max_wait: u64,

    /// Pin the policy to one GPU (single local rank only; several use LOCAL_RANK)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub policy_device_id: Option<i64>,

    /// Device of the policy: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub policy_device: Option<String>,
}

/// Default port of local rank 0, that of GR00T's server.
const PORT: u16 = 5555;

/// The two forms of arrays that GR00T's clients have had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Arrays {
    /// Maps with binary keys.
    #[default]
    Kind,
    /// npy files.
    Npy,
}

/// The environment variable with the token of `--api-token`.
pub const TOKEN_VARIABLE: &str = "RRUN_API_TOKEN";

/// Refuses an empty token, which would disable the check and admit clients that should be refused.
fn token(text: &str) -> Result<String, Refusal> {
    match text {
        "" => Err(Refusal::new("it is empty; omit it to allow everyone")),
        token => Ok(token.to_owned()),
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
        let named = |word: &str| Path::new(word).exists().then(|| "--policy".to_owned());
        Self::from_arg_matches(&parsed(Self::command(), EXAMPLES, words, named)?)
    }

    /// Returns how long a request waits for other requests.
    pub fn max_wait(&self) -> Duration {
        Duration::from_millis(self.max_wait)
    }

    /// Returns the port of a local rank.
    ///
    /// # Errors
    /// Refuses a rank whose number would exceed the last port.
    pub fn port_of(&self, local_rank: usize) -> Result<u16, Refusal> {
        let first = self.first_port();
        let port = u16::try_from(local_rank)
            .ok()
            .and_then(|rank| first.checked_add(rank));
        match first {
            0 => Ok(0),
            _ => port.ok_or_else(|| {
                Refusal::new(format_args!(
                    "--port {first} leaves no port for local rank {local_rank}"
                ))
            }),
        }
    }

    /// Returns whether one of the ports of `nproc` ranks is that of `--front-port`.
    pub fn is_front_port_taken(&self, nproc: usize) -> bool {
        let front = self.front_port.filter(|port| *port != 0);
        front
            .is_some_and(|front| (0..nproc).any(|local_rank| self.port_of(local_rank) == Ok(front)))
    }

    fn first_port(&self) -> u16 {
        self.port.unwrap_or(match self.front_port {
            None => PORT,
            // Any free port, like that of the front; the last port has no successor.
            Some(0 | u16::MAX) => 0,
            Some(front) => front + 1,
        })
    }
}

#[cfg(test)]
mod tests;
