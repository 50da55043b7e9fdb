//! Why a launch is refused, before anything was started.

use std::path::PathBuf;

use crate::numa::NumaError;
use crate::slurm::SlurmError;

/// A command line that can be read but not carried out. Where torchrun has a text for it, the text is torchrun's.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// More than two parts.
    #[error("nnodes={0} is not in \"MIN:MAX\" format")]
    NodesFormat(String),
    /// A part of `--nnodes` that is no number.
    #[error("--nnodes: `{0}` is not a whole number")]
    NodesNumber(String),
    /// No nodes, or an empty range.
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
    /// Static backend, a node outside the launch.
    #[error("--node-rank is {found}, of {nodes} nodes it must be one from 0 to {}", .nodes - 1)]
    NodeRank {
        /// As given.
        found: i64,
        /// Nodes of the launch.
        nodes: usize,
    },
    /// A port that the other nodes could not know.
    #[error("port 0 in endpoint {0}: several nodes need a port that all of them know")]
    FreePort(String),
    /// c10d with `store_type=file`.
    #[error("store_type=file with several nodes needs a file that all of them see: --rdzv-endpoint PATH")]
    FileStore,
    /// Negative or beyond reason.
    #[error("max_restarts must be >= 0, got {0}")]
    MaxRestarts(i64),
    /// `gpu` without one.
    #[error("Cuda is not available.")]
    NoCuda,
    /// `xpu`.
    #[error("Xpu is not available.")]
    NoXpu,
    /// Neither number nor known word.
    #[error("Unsupported nproc_per_node value: {0}")]
    RanksValue(String),
    /// None, or more than processes can be.
    #[error("nproc_per_node must be between 1 and {most}, got {found}")]
    RanksRange {
        /// Asked for.
        found: i64,
        /// Most possible.
        most: usize,
    },
    /// `--rdzv-conf` with an empty key.
    #[error("The rendezvous configuration string must be in format <key1>=<value1>,...,<keyN>=<valueN>.")]
    ConfFormat,
    /// `--rdzv-conf` with an empty value.
    #[error("The rendezvous configuration option '{0}' must have a value specified.")]
    ConfValue(String),
    /// `--rdzv-conf`, a key that is an option of its own.
    #[error("The rendezvous configuration option '{0}' cannot be set here, it has an option of its own.")]
    ConfCollision(String),
    /// `--rdzv-conf`, a number expected.
    #[error("The rendezvous configuration option '{0}' does not represent a valid integer value.")]
    ConfInteger(String),
    /// `--rdzv-conf`, a truth value expected.
    #[error("The rendezvous configuration option '{0}' does not represent a valid boolean value.")]
    ConfBoolean(String),
    /// `--rdzv-conf`, a time that is none.
    #[error("The {name} timeout ({seconds} s) must be positive.")]
    ConfTimeout {
        /// `join`, `close` and so on.
        name: String,
        /// As given.
        seconds: i64,
    },
    /// `store_type`.
    #[error("Invalid store type given. Currently only supports file and tcp.")]
    StoreType,
    /// `--local-ranks-filter`.
    #[error("--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2")]
    LocalRanksFilter,
    /// `-r` or `-t`.
    #[error("{0} does not match: <^[0123]$> or <^(\\d:[0123],)*(\\d:[0123])$>")]
    Streams(String),
    /// `--log-dir` that cannot be one.
    #[error("log_dir: {} is a file", .0.display())]
    LogDirIsFile(PathBuf),
    /// Two ways to read the program.
    #[error("Don't use both the '--no-python' flag and the '--module' flag at the same time.")]
    NoPythonModule,
    /// `--rdzv-backend` that nobody knows.
    #[error("The rendezvous backend '{0}' is not registered. Did you forget to call `register`?")]
    Backend(String),
    /// `--rdzv-backend etcd` and `etcd-v2`.
    #[error("the rendezvous backend '{0}' is not available, `c10d` takes its place without a server")]
    Etcd(String),
    /// Port of an endpoint.
    #[error("The port number of the rendezvous endpoint '{0}' must be an integer between 0 and 65536.")]
    EndpointPort(String),
    /// Host of an endpoint.
    #[error(
        "The hostname of the rendezvous endpoint '{0}' must be a dot-separated list of labels, an IPv4 address, or an \
         IPv6 address."
    )]
    EndpointHost(String),
    /// Static backend, no port.
    #[error("port is missing in endpoint: {0}. Try to specify --master-port")]
    MissingPort(String),
    /// Not a time.
    #[error("monitor_interval must be > 0, got {0}")]
    MonitorInterval(f64),
    /// Not a time.
    #[error("{from}: the shutdown timeout must be a whole number of seconds >= 0, got {found}")]
    ShutdownTimeout {
        /// Option or variable.
        from: &'static str,
        /// As given.
        found: String,
    },
    /// `--virtual-local-rank` with too few GPUs.
    #[error("local_rank {local_rank} exceeds available GPUs in CUDA_VISIBLE_DEVICES={list}")]
    VirtualRank {
        /// The first rank without a GPU.
        local_rank: usize,
        /// The variable's value.
        list: String,
    },
    /// `--event-log-handler`.
    #[error("unknown event log handler '{0}' (known: null, console, dynamic_rendezvous, json:FILE)")]
    EventLogHandler(String),
    /// `--numa-binding` that this node does not allow.
    #[error("--numa-binding {mode}: {err}")]
    Numa {
        /// As given.
        mode: String,
        /// Why not.
        err: NumaError,
    },
    /// SLURM's variables.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// A tool behind options of the launcher, or behind `--`.
    #[error(
        "`{0}` launches nothing and takes no options of a launch: it comes first, as in `rrun {0} --help`; a file is ./{0}"
    )]
    ToolComesFirst(String),
    /// A program that is no file, and looks like a word that is built in.
    #[error("there is no file `{word}`; did you mean `rrun {meant}`?")]
    Misspelt {
        /// As given.
        word: String,
        /// The nearest word.
        meant: &'static str,
    },
    /// What `serve` was given.
    #[error("{0}")]
    Serve(String),
    /// `--logs-specs`: there is no Python in the launcher to load it.
    #[error("--logs-specs {0}: Python entry points are not available in rrun")]
    LogsSpecs(String),
    /// No interpreter.
    #[error("no python3 or python in PATH; activate an environment or set PYTHON_EXEC")]
    NoPython,
    /// `--no-python` with a program that is nowhere.
    #[error("No such file or directory: '{0}'")]
    NoProgram(String),
    /// The command line of `eval`, or its help: clap's text, and its exit code.
    #[error("{text}")]
    EvalUsage {
        /// Text for the terminal.
        text: String,
        /// 0 for help, 2 for a mistake.
        code: u8,
    },
    /// What `eval` is asked to run.
    #[error("{0}")]
    Eval(String),
    /// A built-in program without its binary.
    #[error("`{}` is missing, which runs `rrun eval`; it must stand beside `rrun`", .0.display())]
    NoRankBinary(PathBuf),
}

/// In tests two refusals are the same if they read the same.
#[cfg(test)]
impl PartialEq for PlanError {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}
