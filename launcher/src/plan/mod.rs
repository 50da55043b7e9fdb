//! The plan: everything that can be decided before a socket, a file or a child exists.
//!
//! ```text
//! cli::Cli + environment + node::Node ──Plan::new──► Plan ──► agent::run
//!                                           └──► refused, with nothing started
//! ```
//! `rrun --dry-run` prints it as JSON.

pub mod caveats;
pub mod conf;
pub mod crowd;
pub mod decide;
pub mod dedicated;
pub mod endpoint;
pub mod error;
pub mod eval;
pub mod failure;
mod idle;
pub mod limits;
pub mod logs;
pub mod meeting;
pub mod missing;
pub mod model_server;
pub mod nodes;
pub mod nproc;
pub mod numa;
pub mod program;
pub mod python;
pub mod ranks;
pub mod rendezvous;
pub mod room;
pub mod seating;
pub mod serve;
pub mod signals;
pub mod streams;
pub mod template;
pub mod variables;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::events::EventLog;
use crate::numa::CpuList;
pub use crate::plan::error::PlanError;
use crate::plan::eval::EvalPlan;
pub use crate::plan::failure::FailurePolicy;
use crate::plan::model_server::ServerPlan;
use crate::plan::rendezvous::RendezvousPlan;
use crate::process::files::FileLimit;
use crate::say::Note;

/// One launch on this node.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// Nodes that take part, at most.
    pub nnodes: usize,
    /// `TORCHELASTIC_RUN_ID`.
    pub run_id: String,
    /// `ROLE_NAME`.
    pub role: String,
    /// What a rank that fails means for the others.
    pub failure_policy: FailurePolicy,
    /// Restarts of all ranks before the launch has failed, or of each before it is lost.
    pub max_restarts: u32,
    /// Time between SIGTERM and SIGKILL.
    pub shutdown_timeout: Duration,
    /// Where the store of one node listens, and what the ranks are told.
    pub store: StorePlan,
    /// Where the nodes meet, if there may be several.
    pub rendezvous: Option<RendezvousPlan>,
    /// Signals that end the launch in order, by number and name; the names as the user gave them go to the ranks.
    pub signals: SignalPlan,
    /// Log files and console.
    pub logs: LogPlan,
    /// What a failure report calls the program.
    pub title: String,
    /// Set for every rank, over the inherited environment.
    pub env: BTreeMap<String, String>,
    /// One entry a local rank, in order.
    pub ranks: Vec<RankPlan>,
    /// What the launcher was given and its ranks inherit; the launcher itself raises it.
    #[serde(skip)]
    pub open_files: Option<FileLimit>,
    /// `--event-log-handler`.
    pub events: EventLog,
    /// `--rusage`: what each rank used is said when it has ended.
    pub reports_usage: bool,
    /// Lines for stderr before the start: a rule of torchrun's that took effect, something ignored.
    pub notes: Vec<Note>,
    /// What runs beside the ranks of this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_server: Option<ServerPlan>,
    /// Whether the program is one of ours, whose exit codes we know.
    #[serde(skip)]
    pub is_built_in: bool,
    /// What the built-in program `eval` is to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eval: Option<EvalPlan>,
}

/// The store that the ranks meet in.
#[derive(Clone, Debug, Serialize)]
pub struct StorePlan {
    /// `MASTER_ADDR`, without brackets.
    pub master_addr: String,
    /// `MASTER_PORT`; any free one if `None`.
    pub port: Option<u16>,
    /// Whether a free one will do where `port` is taken: nobody has asked for it.
    pub may_move: bool,
}

/// Who sends signals to the launcher, and so what they mean besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum Sender {
    /// A terminal, a shell, a service: one process gets one signal.
    #[default]
    Anyone,
    /// SLURM, to all processes of a batch script: SIGTERM comes in up to three copies. SIGUSR1 and SIGUSR2 announce the
    /// time limit to the script (`--signal=B:…`), which passes them to us, and we to the ranks.
    SlurmToScript,
    /// SLURM, to every process of a step: as before, but the ranks have had SIGUSR1 and SIGUSR2 already.
    SlurmToStep,
}

/// Which signals are handled.
#[derive(Clone, Debug, Serialize)]
pub struct SignalPlan {
    /// Who sends them.
    pub sender: Sender,
    /// `TORCHELASTIC_SIGNALS_TO_HANDLE`, as given.
    pub spec: String,
    /// Numbers of the known ones.
    pub numbers: Vec<i32>,
}

/// Log files and console.
#[derive(Clone, Debug, Serialize)]
pub struct LogPlan {
    /// `--log-dir`; a new folder under `TMPDIR` if `None`.
    pub dir: Option<PathBuf>,
    /// `--log-dir /dev/null`: no folder, no files, no error file.
    pub disabled: bool,
    /// Substrings of the lines that also go to `filtered_stdout.log`.
    pub duplicate_stdout: Vec<String>,
    /// Substrings of the lines that also go to `filtered_stderr.log`.
    pub duplicate_stderr: Vec<String>,
    /// `--log-line-prefix-template`, else `TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE`.
    pub prefix_template: Option<String>,
}

/// One process to start.
#[derive(Clone, Debug, Serialize)]
pub struct RankPlan {
    /// True local rank, also with `--virtual-local-rank`: `0..nproc`, or the one that SLURM gave to a task that is a rank.
    pub local_rank: usize,
    /// Program and arguments after macro substitution; the program is looked up in the rank's `PATH`.
    #[serde(serialize_with = "lossy")]
    pub argv: Vec<OsString>,
    /// `LOCAL_RANK` as the rank sees it, `CUDA_VISIBLE_DEVICES` and the like: over [`Plan::env`].
    pub env: BTreeMap<String, String>,
    /// Streams that go to a file.
    pub redirect: Streams,
    /// Streams that go to a file and, with a prefix, to the console.
    pub tee: Streams,
    /// `--numa-binding`: the CPUs that it may use; those of the launcher if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuList>,
    /// `--local-ranks-filter`: whether what is not redirected, or is teed, reaches the console.
    pub shown: bool,
}

/// A choice of the two output streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Streams {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
}

fn lossy<S: serde::Serializer>(argv: &[OsString], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(argv.iter().map(|arg| arg.to_string_lossy()))
}
