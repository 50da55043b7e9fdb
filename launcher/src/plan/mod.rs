//! The plan of a launch: everything that can be decided before a socket, a file or a child process
//! exists.
//!
//! ```text
//! cli::Cli + environment + node::Node ──launch──► LaunchPlan ──► agent::launch
//!                                          └──► an error, with nothing started
//! ```
//! [`launch`] makes the plan, with what the other modules decide. The types below and in [`eval`]
//! and [`server`] are plain data, which those who carry out the plan may import. `rrun
//! --dry-run=json` prints it.

pub mod eval;
mod launch;
mod meeting;
pub mod missing;
mod program;
mod ranks;
pub mod room;
pub mod seating;
pub mod server;
pub(crate) mod settings;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use jobs::job::Job;
use jobs::model_server::ModelServer;
use serde::Serialize;

use crate::hang::HangPlan;
use crate::node::FileLimit;
use crate::numa::CpuList;
use crate::plan::eval::EvalPlan;
use crate::say::Note;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
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

/// How several nodes meet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RendezvousPlan {
    /// Static or elastic.
    pub backend: Backend,
    /// Host of the endpoint, without brackets.
    pub host: String,
    /// Port of the endpoint; 0 for any free one, which works only for the host of the store.
    pub port: u16,
    /// `store_type=file`: the file that contains the address of the store, instead of host and
    /// port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Fewest nodes.
    pub min: usize,
    /// Most nodes.
    pub max: usize,
    /// A unique id of this launcher.
    pub node_id: String,
    /// `--node-rank`: the index of this node in a static launch, the first sort key in an elastic
    /// one.
    pub node_rank: i64,
    /// `is_host`: whether this launcher hosts the store; with `None`, it does if the endpoint has
    /// its address.
    pub hosts: Option<bool>,
    /// `--local-addr`: the address under which other nodes reach this one.
    pub local_addr: Option<String>,
    /// Whether something starts a node again when its launcher has failed, each node by itself and
    /// none that has succeeded, as Kubernetes does. Then a static launch fails on all nodes if it
    /// fails on one, so that all come back, and a node that comes back before the others have
    /// ended waits for that.
    pub nodes_return: bool,
    /// `TORCH_ELASTIC_WORKER_IDENTICAL=1`: all nodes have the same number of ranks, so none has to
    /// ask the others.
    pub is_identical: bool,
    /// Static: timeout for connecting, and for all nodes to come.
    pub timeout: Duration,
    /// Elastic: timeout for enough nodes to come.
    pub join_timeout: Duration,
    /// Elastic: how long further nodes may come once there are enough.
    pub last_call_timeout: Duration,
    /// Elastic: timeout for connecting to the store.
    pub read_timeout: Duration,
    /// Interval between two heartbeats.
    pub keep_alive_interval: Duration,
    /// Number of missed heartbeats after which a node is dead.
    pub keep_alive_max_attempt: u32,
}

impl RendezvousPlan {
    /// Returns the time without a heartbeat after which a node is dead.
    pub fn keep_alive(&self) -> Duration {
        self.keep_alive_interval
            .saturating_mul(self.keep_alive_max_attempt)
    }
}

/// The rendezvous backend, `--rdzv-backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Every node is given its node rank.
    #[default]
    Static,
    /// Nodes may come and go.
    C10d,
}

impl Backend {
    /// Returns the backend of a name, if there is one.
    pub fn of(name: &str) -> Option<Self> {
        let mut all = Self::value_variants().iter().copied();
        all.find(|backend| backend.name() == name)
    }

    /// Returns the name, as options and events have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::C10d => "c10d",
        }
    }

    /// Returns whether all nodes are known from the beginning and meet at the store of the ranks,
    /// whose address may be given as `--master-addr` and `--master-port`.
    pub fn is_fixed(self) -> bool {
        match self {
            Self::Static => true,
            Self::C10d => false,
        }
    }
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
    /// Parses the option's value.
    ///
    /// # Errors
    /// Returns an error if there is no such handler.
    pub fn parse(handler: &str) -> anyhow::Result<EventLog> {
        match (handler, handler.strip_prefix("json:")) {
            ("null" | "dynamic_rendezvous", _) => Ok(EventLog::None),
            ("console", _) => Ok(EventLog::Console),
            (_, Some(path)) if !path.is_empty() => Ok(EventLog::File(PathBuf::from(path))),
            _ => bail!(
                "unknown event log handler '{handler}' (known: null, console, dynamic_rendezvous, \
                 json:FILE)"
            ),
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
