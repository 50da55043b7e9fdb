//! Errors of the plan: a launch is refused before anything has been started.

use std::path::PathBuf;

use jobs::refusal::Refusal;

use crate::installed::libraries::UnfitInstall;
use crate::kubernetes::error::KubernetesError;
use crate::numa::error::NumaError;
use crate::slurm::error::SlurmError;

/// A command line that can be parsed but not carried out. Where torchrun has a text for the error,
/// that text is used.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// `--nnodes` has more than two parts.
    #[error("nnodes={0} is not in \"MIN:MAX\" format")]
    NodesFormat(String),
    /// A part of `--nnodes` is not a number.
    #[error("--nnodes: `{0}` is not a whole number")]
    NodesNumber(String),
    /// `--nnodes` is zero or an empty range.
    #[error("min_nodes must be > 0 and <= max_nodes, got min_nodes={min}, max_nodes={max}")]
    NodesRange {
        /// Fewest nodes.
        min: i64,
        /// Most nodes.
        max: i64,
    },
    /// `--standalone` with several nodes, which could not find each other.
    #[error("--standalone is for one node, --nnodes is {0}")]
    Standalone(String),
    /// `--node-rank` is outside the range of a static launch.
    #[error("--node-rank is {found}, expected {} with --nnodes {nodes}", ranks_of(*.nodes))]
    NodeRank {
        /// The node rank given.
        found: i64,
        /// Number of nodes of the launch.
        nodes: usize,
    },
    /// The endpoint has port 0, so the other nodes cannot know the port.
    #[error("port 0 in endpoint {0}: several nodes need a port that all of them know")]
    FreePort(String),
    /// c10d with `store_type=file`, several nodes and no endpoint.
    #[error(
        "store_type=file with several nodes needs a file that all of them see: --rdzv-endpoint PATH"
    )]
    FileStore,
    /// `--max-restarts` is negative or too large.
    #[error("max_restarts must be >= 0, got {0}")]
    MaxRestarts(i64),
    /// `--nproc-per-node gpu` on a node without a GPU.
    #[error("Cuda is not available.")]
    NoCuda,
    /// `--nproc-per-node xpu`, which is not supported.
    #[error("Xpu is not available.")]
    NoXpu,
    /// `--nproc-per-node` is neither a number nor a known word.
    #[error("Unsupported nproc_per_node value: {0}")]
    RanksValue(String),
    /// `--nproc-per-node` is zero, or larger than the number of possible processes.
    #[error("nproc_per_node must be between 1 and {most}, got {found}")]
    RanksRange {
        /// The number asked for.
        found: i64,
        /// The largest possible number.
        most: usize,
    },
    /// `--rdzv-conf` has an empty key.
    #[error(
        "The rendezvous configuration string must be in format <key1>=<value1>,...,<keyN>=<valueN>."
    )]
    ConfFormat,
    /// `--rdzv-conf` has an empty value.
    #[error("The rendezvous configuration option '{0}' must have a value specified.")]
    ConfValue(String),
    /// `--rdzv-conf` has a key that is an option of its own.
    #[error(
        "The rendezvous configuration option '{0}' cannot be set here, it has an option of its own."
    )]
    ConfCollision(String),
    /// `--rdzv-conf`: an integer is expected.
    #[error("The rendezvous configuration option '{0}' does not represent a valid integer value.")]
    ConfInteger(String),
    /// `--rdzv-conf`: a boolean is expected.
    #[error("The rendezvous configuration option '{0}' does not represent a valid boolean value.")]
    ConfBoolean(String),
    /// `--rdzv-conf` has an invalid timeout.
    #[error("The {name} timeout ({seconds} s) must be positive.")]
    ConfTimeout {
        /// Name of the timeout: `join`, `close` and so on.
        name: String,
        /// The value given, in seconds.
        seconds: i64,
    },
    /// `--rdzv-conf` has an unknown `store_type`.
    #[error("Invalid store type given. Currently only supports file and tcp.")]
    StoreType,
    /// `--local-ranks-filter` is not a list of numbers.
    #[error(
        "--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2"
    )]
    LocalRanksFilter,
    /// `-r` or `-t` cannot be parsed.
    #[error("{0} does not match: <^[0123]$> or <^(\\d:[0123],)*(\\d:[0123])$>")]
    Streams(String),
    /// `--log-dir` names a file.
    #[error("log_dir: {} is a file", .0.display())]
    LogDirIsFile(PathBuf),
    /// `--no-python` and `--module` exclude each other.
    #[error("Don't use both the '--no-python' flag and the '--module' flag at the same time.")]
    NoPythonModule,
    /// `--rdzv-backend` is unknown.
    #[error("The rendezvous backend '{0}' is not registered. Did you forget to call `register`?")]
    Backend(String),
    /// `--rdzv-backend etcd` and `etcd-v2`, which are not supported.
    #[error(
        "the rendezvous backend '{0}' is not available, `c10d` takes its place without a server"
    )]
    Etcd(String),
    /// The port of an endpoint is invalid.
    #[error(
        "The port number of the rendezvous endpoint '{0}' must be an integer between 0 and 65536."
    )]
    EndpointPort(String),
    /// The host of an endpoint is invalid.
    #[error(
        "The hostname of the rendezvous endpoint '{0}' must be a dot-separated list of labels, an IPv4 address, or an \
         IPv6 address."
    )]
    EndpointHost(String),
    /// The static backend needs a port.
    #[error("port is missing in endpoint: {0}. Try to specify --master-port")]
    MissingPort(String),
    /// `--monitor-interval` is not a valid time.
    #[error("monitor_interval must be > 0, got {0}")]
    MonitorInterval(f64),
    /// The shutdown timeout is not a valid time.
    #[error("{from}: the shutdown timeout must be a whole number of seconds >= 0, got {found}")]
    ShutdownTimeout {
        /// The option or variable that set it.
        from: &'static str,
        /// The value given.
        found: String,
    },
    /// `--hang-timeout` is not a valid time.
    #[error("--hang-timeout must be a whole number of seconds > 0, got {0}")]
    HangTimeout(i64),
    /// `--on-hang` without `--hang-timeout`.
    #[error("--on-hang needs --hang-timeout, the time after which a silent rank hangs")]
    OnHangWithoutTimeout,
    /// `--virtual-local-rank` with fewer GPUs than ranks.
    #[error("local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={list}")]
    VirtualRank {
        /// The first rank without a GPU.
        local_rank: usize,
        /// The value of `CUDA_VISIBLE_DEVICES`.
        list: String,
    },
    /// `--event-log-handler` is unknown.
    #[error(
        "unknown event log handler '{0}' (known: null, console, dynamic_rendezvous, json:FILE)"
    )]
    EventLogHandler(String),
    /// `--numa-binding` is not possible on this node.
    #[error("--numa-binding {mode}: {err}")]
    Numa {
        /// The mode given.
        mode: String,
        /// The reason.
        err: NumaError,
    },
    /// SLURM's variables cannot be used.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// The variables of a Kubernetes pod cannot be used.
    #[error(transparent)]
    Kubernetes(#[from] KubernetesError),
    /// A tool follows options of the launcher, or `--`.
    #[error(
        "`{0}` is a tool and takes no launch options: write it first, for example `rrun {0} \
         --help`; a file is ./{0}"
    )]
    ToolComesFirst(String),
    /// The program is a jobs file.
    #[error("`{0}` is no script; `rrun eval --jobs {0}` runs the jobs of a file")]
    JobsFileAsScript(String),
    /// The program is not a file, and resembles a built-in word.
    #[error("there is no file `{word}`; did you mean `rrun {meant}`?")]
    Misspelt {
        /// The word given.
        word: String,
        /// The most similar built-in word.
        meant: &'static str,
    },
    /// The command line of `serve` is invalid.
    #[error("{0}")]
    Serve(String),
    /// `--logs-specs` names an entry point, which the launcher cannot load because it runs no
    /// Python.
    #[error("--logs-specs {0}: Python entry points are not available in rrun")]
    LogsSpecs(String),
    /// No Python interpreter was found.
    #[error("no python3 or python in PATH; activate an environment or set PYTHON_EXEC")]
    NoPython,
    /// The program of `--no-python` was not found.
    #[error("No such file or directory: '{0}'")]
    NoProgram(String),
    /// The command line of `eval` is invalid, or asks for help.
    #[error("{text}")]
    EvalUsage {
        /// clap's text for the terminal.
        text: String,
        /// clap's exit code: 0 for help, 2 for an error.
        code: u8,
    },
    /// The evaluation was refused.
    #[error(transparent)]
    Eval(#[from] Refusal),
    /// The binary of a built-in program was not found.
    #[error(
        "`{}` is missing; it runs `rrun eval` and `rrun serve`, and must be in the same folder as \
         `rrun`, or in the Python package `rrun` of the same venv",
        .0.display()
    )]
    NoRankBinary(PathBuf),
    /// The binary of a built-in program would not start.
    #[error(transparent)]
    UnfitInstall(#[from] UnfitInstall),
}

/// Returns the node ranks that there are.
fn ranks_of(nodes: usize) -> String {
    match nodes {
        0 | 1 => "0".to_owned(),
        nodes => format!("0 to {}", nodes - 1),
    }
}
