//! The plan of a launch: everything that can be decided before a socket, a file or a child process
//! exists.
//!
//! ```text
//! cli::Cli + environment + node::Node ──launch──► LaunchPlan ──► agent::launch
//!                                          └──► an error, with nothing started
//! ```
//! [`launch`] makes the plan, with what the other modules decide. The types below and in [`eval`],
//! [`page`] and [`rendezvous`] are plain data, which those who carry out the plan may import. `rrun
//! --dry-run=json` prints it.

pub mod eval;
mod launch;
mod meeting;
pub mod memory;
pub mod missing;
pub mod page;
mod program;
mod ranks;
pub mod rendezvous;
pub mod seating;
mod server;
pub(crate) mod settings;
mod useful;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use jobs::job::Job;
use jobs::model_server::ModelServer;
use serde::Serialize;

use crate::hang::HangPlan;
use crate::node::FileLimit;
use crate::numa::CpuList;
use crate::plan::eval::EvalPlan;
use crate::plan::rendezvous::RendezvousPlan;
use crate::say::note::Note;

/// The plan of one launch on this node.
#[derive(Clone, Debug, Serialize)]
pub struct LaunchPlan {
    /// Largest number of nodes that take part.
    pub nnodes: usize,
    /// The run id, `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
    /// The role of the ranks, `ROLE_NAME`.
    pub role: String,
    /// What the failure of a rank means for the others.
    pub failure_policy: FailurePolicy,
    /// Restarts of all ranks until the launch has failed, or of each rank until it is lost,
    /// depending on the failure policy.
    pub max_restarts: u32,
    /// Time between SIGTERM and SIGKILL.
    pub shutdown_timeout: Duration,
    /// When a rank hangs, and what happens then.
    pub hang: HangPlan,
    /// Where the store of a single-node launch listens, and the address that ranks are given.
    pub store: StorePlan,
    /// How the nodes meet, if there may be several.
    pub rendezvous: Option<RendezvousPlan>,
    /// Signals that stop the launch in an orderly way, as numbers and names; ranks get the names as
    /// the user gave them.
    pub signals: SignalPlan,
    /// Log files and console output.
    pub logs: LogPlan,
    /// Name of the program in a failure report.
    pub title: String,
    /// Variables set for every rank, overriding the inherited environment.
    pub env: BTreeMap<String, String>,
    /// The ranks of this node in the order of their local ranks.
    pub ranks: Vec<RankPlan>,
    /// The launcher's initial limits on open files, which its ranks inherit; the launcher raises
    /// its own.
    #[serde(skip)]
    pub open_files: Option<FileLimit>,
    /// `--event-log-handler`: where events are written.
    pub events: EventLog,
    /// `--rusage`: whether to print the resource usage of each rank when it has ended.
    pub reports_usage: bool,
    /// Lines for stderr before the start: a rule of torchrun that took effect, or something
    /// ignored.
    pub notes: Vec<Note>,
    /// The model server that runs beside the ranks of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ServerPlan>,
    /// Whether the program is built in, so that the meaning of its exit codes is known.
    #[serde(skip)]
    pub is_built_in: bool,
    /// The server of the built-in program `serve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serve: Option<ServePlan>,
    /// The evaluation of the built-in program `eval`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<EvalPlan>,
}

/// What the failure of a rank means for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum FailurePolicy {
    /// All ranks end, and restart together while a restart is left.
    Torchrun,
    /// The others go on; the rank restarts alone while it has a restart left, and is lost after
    /// that.
    Isolate,
}

/// The store in which the ranks meet.
#[derive(Clone, Debug, Serialize)]
pub struct StorePlan {
    /// The host as `MASTER_ADDR`, without brackets.
    pub master_addr: String,
    /// The port as `MASTER_PORT`; `None` for any free one.
    pub port: Option<u16>,
    /// Whether a free port may replace `port` if that is taken, because the user has not asked for
    /// it.
    pub may_move: bool,
    /// Whether the launcher hosts the store; else rank 0 does
    /// (`TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1`). With the static backend, the only one with a port,
    /// ranks always meet in the store of the launcher.
    pub is_shared: bool,
}

/// The sender of signals to the launcher, which decides what they mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Sender {
    /// A terminal, a shell or a service manager, which signals one process once.
    #[default]
    Anyone,
    /// SLURM, which signals all processes of a batch script: SIGTERM arrives in up to three copies.
    /// SIGUSR1 and SIGUSR2 announce the time limit to the script (`--signal=B:…`), which forwards
    /// them to the launcher, and the launcher to the ranks.
    SlurmToScript,
    /// SLURM, which signals every process of a step. As above, but the ranks have received SIGUSR1
    /// and SIGUSR2 already.
    SlurmToStep,
}

/// The signals that the launcher handles.
#[derive(Clone, Debug, Serialize)]
pub struct SignalPlan {
    /// Their sender.
    pub sender: Sender,
    /// The list as given, `TORCHELASTIC_SIGNALS_TO_HANDLE`.
    pub spec: String,
    /// Numbers of the known signals in the list.
    pub numbers: Vec<i32>,
}

/// Log files and console output.
#[derive(Clone, Debug, Serialize)]
pub struct LogPlan {
    /// `--log-dir`; `None` for a new folder in `TMPDIR`.
    pub dir: Option<PathBuf>,
    /// Whether `--log-dir` is `/dev/null`: no folder, no log files, no error file.
    pub disabled: bool,
    /// Substrings of the lines that are also written to `filtered_stdout.log`.
    pub duplicate_stdout: Vec<String>,
    /// Substrings of the lines that are also written to `filtered_stderr.log`.
    pub duplicate_stderr: Vec<String>,
    /// `--log-line-prefix-template`, else the variable `TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`.
    pub prefix_template: Option<String>,
}

/// The plan of one rank process.
#[derive(Clone, Debug, Serialize)]
pub struct RankPlan {
    /// The real local rank, even with `--virtual-local-rank`: in `0..nproc`, or the one that SLURM
    /// gave to a task that is a rank.
    pub local_rank: usize,
    /// Program and arguments after macro substitution; the program is looked up in the rank's
    /// `PATH`.
    #[serde(serialize_with = "lossy")]
    pub argv: Vec<OsString>,
    /// `LOCAL_RANK` as the rank sees it, `CUDA_VISIBLE_DEVICES` and the like; overrides
    /// [`LaunchPlan::env`].
    pub env: BTreeMap<String, String>,
    /// Streams that go to a file.
    pub redirect: Streams,
    /// Streams that go to a file and, with a prefix, to the console.
    pub tee: Streams,
    /// The CPUs that the rank may use, from `--numa-binding`; `None` for those of the launcher.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
    /// `--local-ranks-filter`: whether streams that are not redirected, or are teed, reach the
    /// console.
    pub shown: bool,
}

/// `--event-log-handler`: where the events of a launch are written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub enum EventLog {
    /// Events are not written.
    #[default]
    None,
    /// Standard error.
    Console,
    /// A file, to which events are appended.
    File(PathBuf),
}

impl EventLog {
    /// Parses the option's value; returns `None` if there is no such handler.
    pub fn parse(handler: &str) -> Option<EventLog> {
        match (handler, handler.strip_prefix("json:")) {
            ("null" | "dynamic_rendezvous", _) => Some(EventLog::None),
            ("console", _) => Some(EventLog::Console),
            (_, Some(path)) if !path.is_empty() => Some(EventLog::File(PathBuf::from(path))),
            _ => None,
        }
    }
}

/// A checked policy server (`serve`).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServePlan {
    /// `--front-port`: the address that all ranks of this node share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub front: Option<SocketAddr>,
    /// A job with the policy and the environment, whose files have to exist.
    #[serde(skip)]
    pub job: Option<Job>,
    /// Number of GPUs that this node shows.
    #[serde(skip)]
    pub gpus: usize,
}

/// A checked model server, which runs beside the ranks of a node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServerPlan {
    /// The server as in the jobs file, with the variable for its GPUs added.
    #[serde(flatten)]
    pub server: ModelServer,
    /// The log file, to which its output is appended.
    pub log: PathBuf,
    /// Whether this launcher starts the server. Under SLURM, the first launcher of a node does.
    pub role: ServerRole,
}

/// Which launcher runs the model server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerRole {
    /// This launcher starts the server.
    Host,
    /// Another launcher on this node does; this one only waits until it is healthy.
    Guest,
}

/// A selection of the two output streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// Whether standard output is selected.
    pub stdout: bool,
    /// Whether standard error is selected.
    pub stderr: bool,
}

impl Streams {
    /// Returns the union of two selections.
    pub fn or(self, other: Streams) -> Streams {
        Streams {
            stdout: self.stdout || other.stdout,
            stderr: self.stderr || other.stderr,
        }
    }
}

fn lossy<S: serde::Serializer>(argv: &[OsString], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(argv.iter().map(|arg| arg.to_string_lossy()))
}

#[cfg(test)]
mod tests;
