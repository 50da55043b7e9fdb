//! Declares all options, torchrun's and the few of rrun. [`crate::cli::words`] takes the names from
//! here, and `--help` is printed from here.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Parser, ValueHint};

use crate::cli::python::{float, int, repr};

/// The help text about the spelling of options, which is torchrun's.
const SPELLINGS: &str = "\
Options stand before PROGRAM, everything after it is passed on. Words of an option may be joined by `-` or `_`, and an \
option may be shortened as long as it stays clear. A variable PET_<OPTION>, as PET_NPROC_PER_NODE, sets a default.";

/// Starts a program once per rank, as torchrun does, with the same options, variables, logs and exit codes
#[derive(Clone, Debug, Parser)]
#[command(name = "rrun", version, term_width = 80, args_override_self = true)]
#[command(disable_help_flag = true, disable_version_flag = true, after_help = SPELLINGS)]
#[command(
    override_usage = "rrun [OPTIONS] PROGRAM [ARGS]...\n       rrun [OPTIONS] eval --jobs FILE [ARGS]...\n       rrun [OPTIONS] serve --policy POLICY [ARGS]...\n       rrun merge DIR...\n       rrun report DIR\n       rrun verify DIR\n       rrun compare A B\n       rrun fit --jobs FILE"
)]
pub struct Cli {
    /// Python script; a module with -m, an executable with --no-python. `eval` (runs the jobs of a file) and `serve` (answers
    /// robots) are built in: `rrun eval --help`, `rrun serve --help`
    #[arg(value_name = "PROGRAM", required = true, value_hint = ValueHint::FilePath)]
    pub program: OsString,

    /// Arguments of PROGRAM; ${local_rank} becomes the local rank and $$ becomes $
    #[arg(
        value_name = "ARGS",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub args: Vec<OsString>,

    /// Ranks on this node: a number, `gpu`, `cpu`, or `auto` (GPUs if there are any, else CPUs)
    #[arg(long, value_name = "N", default_value = "1", help_heading = "Ranks")]
    pub nproc_per_node: String,

    /// Nodes: N, or MIN:MAX with the c10d backend
    #[arg(long, value_name = "N", default_value = "1:1", help_heading = "Ranks")]
    pub nnodes: String,

    /// Index of this node; with the c10d backend, what nodes are sorted by
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_int, help_heading = "Ranks")]
    pub node_rank: i64,

    /// Role name, for ROLE_NAME and the prefix of lines
    #[arg(
        long,
        value_name = "NAME",
        default_value = "default",
        help_heading = "Ranks"
    )]
    pub role: String,

    /// LOCAL_RANK=0 for every rank, and CUDA_VISIBLE_DEVICES with its GPU alone
    #[arg(long, help_heading = "Ranks")]
    pub virtual_local_rank: bool,

    /// Bind each rank to CPUs near its GPU: node, socket, exclusive (physical cores of its own) or core-complex (CPUs
    /// that share a cache)
    #[arg(long, value_name = "MODE", value_parser = parse_numa_binding, help_heading = "Ranks")]
    pub numa_binding: Option<String>,

    /// PROGRAM is a Python module
    #[arg(short, long, help_heading = "Program")]
    pub module: bool,

    /// PROGRAM is an executable, looked up in PATH
    #[arg(long, help_heading = "Program")]
    pub no_python: bool,

    /// Run the script by runpy, its exception recorded in the error file
    #[arg(long, help_heading = "Program")]
    pub run_path: bool,

    /// How --run-path makes processes: spawn, fork or forkserver; here always a fresh interpreter
    #[arg(long, value_name = "METHOD", default_value = "spawn", value_parser = parse_start_method)]
    #[arg(help_heading = "Program")]
    pub start_method: String,

    /// Meet on a free port under a random run id; other rendezvous options are ignored
    #[arg(long, help_heading = "Rendezvous")]
    pub standalone: bool,

    /// MASTER_ADDR of the static backend; IPv6 as [::1] [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", help_heading = "Rendezvous")]
    pub master_addr: Option<String>,

    /// MASTER_PORT of the static backend [default: 29500; a free port on one node]
    #[arg(long, value_name = "PORT", value_parser = parse_int, help_heading = "Rendezvous")]
    pub master_port: Option<i64>,

    /// This node's address; MASTER_ADDR unless the backend is static
    #[arg(long, value_name = "HOST", help_heading = "Rendezvous")]
    pub local_addr: Option<String>,

    /// static or c10d
    #[arg(
        long,
        value_name = "NAME",
        default_value = "static",
        help_heading = "Rendezvous"
    )]
    pub rdzv_backend: String,

    /// HOST[:PORT] to meet at
    #[arg(
        long,
        value_name = "ENDPOINT",
        default_value = "",
        hide_default_value = true,
        help_heading = "Rendezvous"
    )]
    pub rdzv_endpoint: String,

    /// auto: what is left out above is read from SLURM's variables within srun and sbatch; off: it is not
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = parse_slurm, help_heading = "Rendezvous")]
    pub slurm: String,

    /// Run id
    #[arg(
        long,
        value_name = "ID",
        default_value = "none",
        help_heading = "Rendezvous"
    )]
    pub rdzv_id: String,

    /// Further settings: KEY=VALUE,KEY=VALUE
    #[arg(
        long,
        value_name = "CONF",
        default_value = "",
        hide_default_value = true,
        help_heading = "Rendezvous"
    )]
    pub rdzv_conf: String,

    /// Restarts of all ranks before the launch has failed; with isolate, of each rank before it is lost [default: 0; for
    /// eval and serve with isolate 6]
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_int, help_heading = "Failure and stop")]
    #[arg(hide_default_value = true)]
    pub max_restarts: i64,

    /// What a rank that fails means for the others: torchrun (all end, and restart together) or isolate (it restarts
    /// alone, they go on) [default: isolate for eval and serve, else torchrun]
    #[arg(long, value_name = "POLICY", value_parser = parse_failure_policy, help_heading = "Failure and stop")]
    pub failure_policy: Option<String>,

    /// Seconds between the signal that ends a rank and SIGKILL [default: TORCH_ELASTIC_SHUTDOWN_TIMEOUT or 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_int, help_heading = "Failure and stop")]
    pub shutdown_timeout: Option<i64>,

    /// Signals that are passed to the ranks and end the launch
    #[arg(
        long,
        value_name = "NAMES",
        default_value = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
    )]
    #[arg(help_heading = "Failure and stop")]
    pub signals_to_handle: String,

    /// Seconds between two looks at the ranks in torchrun; here an exit is seen at once
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = parse_float)]
    #[arg(help_heading = "Failure and stop")]
    pub monitor_interval: f64,

    /// Folder of log files [default: a new one under TMPDIR]; /dev/null for none
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from), help_heading = "Logs")]
    pub log_dir: Option<PathBuf>,

    /// Streams that go to files: 0 none, 1 stdout, 2 stderr, 3 both (-r 3), or by local rank (-r 0:3,1:2)
    #[arg(
        short,
        long,
        value_name = "STREAMS",
        default_value = "0",
        help_heading = "Logs"
    )]
    pub redirects: String,

    /// Streams that go to files and, line by line with a prefix, to the console (-t 3)
    #[arg(
        short,
        long,
        value_name = "STREAMS",
        default_value = "0",
        help_heading = "Logs"
    )]
    pub tee: String,

    /// Local ranks shown on the console, as 0,2 [default: all]
    #[arg(
        long,
        value_name = "RANKS",
        default_value = "",
        hide_default_value = true,
        help_heading = "Logs"
    )]
    pub local_ranks_filter: String,

    /// Lines of teed stdout with one of these texts also go to filtered_stdout.log; `,,` is a comma
    #[arg(
        long,
        value_name = "TEXTS",
        default_value = "",
        hide_default_value = true,
        help_heading = "Logs"
    )]
    pub duplicate_stdout_filters: String,

    /// The same for stderr and filtered_stderr.log
    #[arg(
        long,
        value_name = "TEXTS",
        default_value = "",
        hide_default_value = true,
        help_heading = "Logs"
    )]
    pub duplicate_stderr_filters: String,

    /// Prefix of teed lines, with ${role_name}, ${local_rank}, ${rank}, ${hostname}
    #[arg(long, value_name = "TEXT", help_heading = "Logs")]
    pub log_line_prefix_template: Option<String>,

    /// Python entry point that makes the logs (only `default`)
    #[arg(long, value_name = "NAME", help_heading = "Logs")]
    pub logs_specs: Option<String>,

    /// One JSON line an event: console (stderr) or json:FILE (appended); null or dynamic_rendezvous for none
    #[arg(
        long,
        value_name = "NAME",
        default_value = "null",
        help_heading = "Logs"
    )]
    pub event_log_handler: String,

    /// Form of what rrun says on stderr: text, or json (an object a line); ranks of eval are told
    #[arg(long, value_name = "FORMAT", value_parser = parse_log_format, help_heading = "Logs")]
    pub log_format: Option<String>,

    /// Say only warnings, errors and results; ranks of eval are told
    #[arg(long, help_heading = "Logs")]
    pub quiet: bool,

    /// Print what would be started as JSON, and start nothing
    #[arg(long, help_heading = "Other")]
    pub dry_run: bool,

    /// Say of each rank, when it has ended, what CPU time and memory it used
    #[arg(long, help_heading = "Other")]
    pub rusage: bool,

    /// Print completions for bash, zsh, tcsh or fish
    #[arg(long, value_name = "SHELL", help_heading = "Other")]
    pub print_completion: Option<String>,

    /// Print help
    #[arg(short, long, action = ArgAction::Help, help_heading = "Other")]
    help: Option<bool>,

    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = "Other")]
    version: Option<bool>,

    /// Options that were given, on the command line or by a variable, by their long names.
    #[arg(skip)]
    pub given: BTreeSet<String>,
}

impl Cli {
    /// Returns whether an option was given, even with its default value.
    pub fn is_given(&self, long: &str) -> bool {
        self.given.contains(long)
    }
}

fn parse_int(text: &str) -> Result<i64, String> {
    int(text).ok_or_else(|| format!("invalid int value: {}", repr(text)))
}

fn parse_float(text: &str) -> Result<f64, String> {
    float(text).ok_or_else(|| format!("invalid float value: {}", repr(text)))
}

fn parse_start_method(text: &str) -> Result<String, String> {
    choice(text, &["spawn", "fork", "forkserver"])
}

fn parse_numa_binding(text: &str) -> Result<String, String> {
    choice(text, &["node", "socket", "exclusive", "core-complex"])
}

fn parse_failure_policy(text: &str) -> Result<String, String> {
    choice(text, &["isolate", "torchrun"])
}

fn parse_log_format(text: &str) -> Result<String, String> {
    choice(text, &["text", "json"])
}

fn parse_slurm(text: &str) -> Result<String, String> {
    choice(text, &["auto", "off"])
}

fn choice(text: &str, choices: &[&str]) -> Result<String, String> {
    if choices.contains(&text) {
        return Ok(text.to_owned());
    }
    let choices: Vec<String> = choices.iter().map(|choice| repr(choice)).collect();
    Err(format!(
        "invalid choice: {} (choose from {})",
        repr(text),
        choices.join(", ")
    ))
}
