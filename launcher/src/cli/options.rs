//! Declares all options, torchrun's and the few of rrun. Help, completions and man pages are made of
//! them, too.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser as _};
use clap::{ArgAction, Parser, ValueHint};
use clap_complete::Shell;
use jobs::say::Style;
use jobs::usage::{Headings, under};

use crate::hang::OnHang;
use crate::numa::Mode;
use crate::plan::FailurePolicy;

/// The rendezvous options: which nodes take part and where they meet.
const RENDEZVOUS: [&str; 7] = [
    "nnodes",
    "node-rank",
    "standalone",
    "master-addr",
    "master-port",
    "rdzv-backend",
    "rdzv-endpoint",
];

/// The help text about the spelling of options, which is torchrun's.
const SPELLINGS: &str = "\
Options go before PROGRAM; everything after it is passed to PROGRAM. Words of an option may be \
joined by `-` or `_`, and an option may be abbreviated while it stays unambiguous. A variable \
PET_<OPTION>, e.g. PET_NPROC_PER_NODE, sets a default.";

/// The headings of the help, each with the first option below it.
const HEADINGS: Headings = &[
    ("nproc_per_node", "Ranks"),
    ("module", "Program"),
    ("standalone", "Rendezvous"),
    ("max_restarts", "Failure and stop"),
    ("log_dir", "Logs"),
    ("dry_run", "Other"),
];

/// Start a program once per rank, as torchrun does, with the same options, variables, logs and exit
/// codes
#[derive(Clone, Debug, Parser)]
#[command(name = "rrun", version, term_width = 80)]
#[command(
    args_override_self = true,
    infer_long_args = true,
    hide_possible_values = true
)]
#[command(disable_help_flag = true, disable_version_flag = true, after_help = SPELLINGS)]
#[command(mut_args = under(HEADINGS))]
#[command(
    override_usage = "rrun [OPTIONS] PROGRAM [ARGS]...\n       rrun COMMAND [ARGS]...    (`rrun --help` lists the commands)"
)]
pub struct Cli {
    /// PROGRAM is a Python script, module (with -m) or executable (with --no-python). Two programs
    /// are built in: `eval` runs the jobs of a file, and `serve` serves a policy to robots; see
    /// `rrun help eval` and `rrun help serve`. In ARGS, ${local_rank} is replaced by the local rank,
    /// and $$ by $
    #[arg(value_names = ["PROGRAM", "ARGS"], num_args = 0.., trailing_var_arg = true, value_hint = ValueHint::FilePath)]
    pub(super) words: Vec<OsString>,

    /// The program.
    #[arg(skip)]
    pub program: OsString,

    /// Arguments of the program.
    #[arg(skip)]
    pub args: Vec<OsString>,

    /// Number of ranks on this node: a number, `gpu`, `cpu`, or `auto` (GPUs if there are any, else
    /// CPUs)
    #[arg(long, value_name = "N", default_value = "1")]
    pub nproc_per_node: String,

    /// Number of nodes: N, or MIN:MAX with the c10d backend
    #[arg(long, value_name = "N", default_value = "1:1")]
    pub nnodes: String,

    /// Index of this node; the c10d backend sorts nodes by it
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_int)]
    pub node_rank: i64,

    /// Role name, used in ROLE_NAME and in the prefix of lines
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub role: String,

    /// Set LOCAL_RANK=0 for every rank, and CUDA_VISIBLE_DEVICES to its GPU alone
    #[arg(long, alias = "v")]
    pub virtual_local_rank: bool,

    /// Bind each rank to CPUs near its GPU: node, socket, exclusive (physical cores of its own) or
    /// core-complex (CPUs that share a cache)
    #[arg(long, value_name = "MODE")]
    pub numa_binding: Option<Mode>,

    /// Run PROGRAM as a Python module
    #[arg(short, long)]
    pub module: bool,

    /// Run PROGRAM as an executable, looked up in PATH
    #[arg(long)]
    pub no_python: bool,

    /// Run the script with runpy, and record its exception in the error file
    #[arg(long, alias = "ru")]
    pub run_path: bool,

    /// Start method of --run-path: spawn, fork or forkserver; rrun always starts a fresh
    /// interpreter
    #[arg(long, value_name = "METHOD", default_value = "spawn", value_parser = ["spawn", "fork", "forkserver"])]
    pub start_method: String,

    /// Rendezvous on a free port with a random run id, ignoring other rendezvous options
    #[arg(long)]
    pub standalone: bool,

    /// MASTER_ADDR of the static backend; write IPv6 addresses as [::1] [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    pub master_addr: Option<String>,

    /// MASTER_PORT of the static backend [default: 29500; a free port on one node]
    #[arg(long, value_name = "PORT", value_parser = parse_int)]
    pub master_port: Option<i64>,

    /// Address of this node; used as MASTER_ADDR unless the backend is static
    #[arg(long, value_name = "HOST")]
    pub local_addr: Option<String>,

    /// Rendezvous backend: static or c10d
    #[arg(long, value_name = "NAME", default_value = "static")]
    pub rdzv_backend: String,

    /// Address of the rendezvous: HOST[:PORT]
    #[arg(long, value_name = "ENDPOINT")]
    #[arg(default_value = "", hide_default_value = true)]
    pub rdzv_endpoint: String,

    /// Take omitted options above from SLURM's variables: auto (within srun and sbatch) or off
    /// (never)
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "off"])]
    pub slurm: String,

    /// Take omitted options above from the variables of a Kubernetes pod: auto (within an Indexed
    /// Job or JobSet) or off (never)
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = ["auto", "off"])]
    pub kubernetes: String,

    /// Run id
    #[arg(long, value_name = "ID", default_value = "none")]
    pub rdzv_id: String,

    /// Further rendezvous settings: KEY=VALUE,KEY=VALUE
    #[arg(long, value_name = "CONF")]
    #[arg(default_value = "", hide_default_value = true)]
    pub rdzv_conf: String,

    /// Restart all ranks at most N times before the launch fails; with isolate, restart each rank
    /// at most N times before it is lost [default: 0; for eval and serve with isolate 6]
    #[arg(long, value_name = "N", default_value = "0", value_parser = parse_int)]
    #[arg(hide_default_value = true)]
    pub max_restarts: i64,

    /// What to do when a rank fails: torchrun (end all ranks and restart them together) or isolate
    /// (restart it alone while the others continue) [default: isolate for eval and serve, else
    /// torchrun]
    #[arg(long, value_name = "POLICY")]
    pub failure_policy: Option<FailurePolicy>,

    /// Seconds to wait between the signal that ends a rank and SIGKILL [default:
    /// TORCH_ELASTIC_SHUTDOWN_TIMEOUT or 30]
    #[arg(long, value_name = "SECONDS", value_parser = parse_int)]
    pub shutdown_timeout: Option<i64>,

    /// A rank hangs if it neither writes nor computes for this time (of eval: makes no progress); the
    /// stacks of all threads of all ranks are then written to hang_1.txt [default: nobody watches;
    /// SIGUSR2 asks for the stacks]
    #[arg(long, value_name = "SECONDS", value_parser = parse_int)]
    pub hang_timeout: Option<i64>,

    /// What to do about a rank that hangs, after its stacks have been written: report (nothing),
    /// abort (end the launch) or restart (kill it; --failure-policy decides) [default: report]
    #[arg(long, value_name = "ACTION")]
    pub on_hang: Option<OnHang>,

    /// Pass these signals to the ranks and end the launch
    #[arg(long, value_name = "NAMES")]
    #[arg(default_value = "SIGTERM,SIGINT,SIGHUP,SIGQUIT")]
    pub signals_to_handle: String,

    /// Polling interval of torchrun in seconds; no effect in rrun, which notices exits immediately
    #[arg(long, value_name = "SECONDS", default_value = "0.1", value_parser = parse_float)]
    pub monitor_interval: f64,

    /// Folder for log files, or /dev/null for none [default: a new one under TMPDIR]
    #[arg(long, value_name = "DIR", value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub log_dir: Option<PathBuf>,

    /// Redirect these streams to files: 0 none, 1 stdout, 2 stderr, 3 both (-r 3), or by local rank
    /// (-r 0:3,1:2)
    #[arg(short, long, value_name = "STREAMS", default_value = "0")]
    pub redirects: String,

    /// Write these streams to files and, line by line with a prefix, to the console (-t 3)
    #[arg(short, long, value_name = "STREAMS", default_value = "0")]
    pub tee: String,

    /// Show only these local ranks on the console, e.g. 0,2 [default: all]
    #[arg(long, value_name = "RANKS")]
    #[arg(default_value = "", hide_default_value = true)]
    pub local_ranks_filter: String,

    /// Copy lines of teed stdout that contain one of these texts to filtered_stdout.log; write a
    /// comma as `,,`
    #[arg(long, value_name = "TEXTS")]
    #[arg(default_value = "", hide_default_value = true)]
    pub duplicate_stdout_filters: String,

    /// Do the same for stderr and filtered_stderr.log
    #[arg(long, value_name = "TEXTS")]
    #[arg(default_value = "", hide_default_value = true)]
    pub duplicate_stderr_filters: String,

    /// Prefix of teed lines; may contain ${role_name}, ${local_rank}, ${rank} and ${hostname}
    #[arg(long, value_name = "TEXT")]
    pub log_line_prefix_template: Option<String>,

    /// Python entry point that creates the logs (only `default`)
    #[arg(long, value_name = "NAME")]
    pub logs_specs: Option<String>,

    /// Write one JSON line per event: console (to stderr) or json:FILE (appended); null or
    /// dynamic_rendezvous for none
    #[arg(long, value_name = "NAME", default_value = "null")]
    pub event_log_handler: String,

    /// Format of rrun's messages on stderr: text, or json (one object per line); also applies to
    /// the ranks of eval
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"])]
    pub log_format: Option<String>,

    /// Print only warnings, errors and results; also applies to the ranks of eval
    #[arg(long)]
    pub quiet: bool,

    /// Print what would be started, as tables or as JSON, and start nothing
    #[arg(long, value_name = "FORMAT", value_parser = ["table", "json"])]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "table")]
    pub dry_run: Option<String>,

    /// Print each rank's CPU time and memory when it exits
    #[arg(long)]
    pub rusage: bool,

    /// Print completions for bash, zsh, fish, elvish or powershell
    #[arg(long, value_name = "SHELL")]
    pub print_completion: Option<Shell>,

    /// Write man pages of all commands into DIR
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub write_man: Option<PathBuf>,

    /// Print help
    #[arg(short, long, alias = "h", action = ArgAction::Help)]
    help: Option<bool>,

    /// Print version
    #[arg(short = 'V', long, action = ArgAction::Version)]
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

    /// Returns whether an option says which nodes take part or where they meet. Then nothing is
    /// inferred from the variables of SLURM or Kubernetes.
    pub fn has_rendezvous_option(&self) -> bool {
        RENDEZVOUS.iter().any(|option| self.is_given(option))
    }

    /// Returns the log style that is asked for.
    pub fn log_style(&self) -> Style {
        Style {
            json: self.log_format.as_deref() == Some("json"),
            quiet: self.quiet,
        }
    }

    /// Returns the program's name if it may be a built-in program.
    pub fn built_in(&self) -> Option<&str> {
        self.program
            .to_str()
            .filter(|_| !(self.run_path || self.no_python || self.module))
    }

    /// Returns whether a built-in program is asked for that runs in ranks.
    pub fn is_built_in(&self) -> bool {
        matches!(self.built_in(), Some("eval" | "serve"))
    }
}

fn parse_int(text: &str) -> Result<i64, &'static str> {
    int(text).ok_or("expected a whole number")
}

fn parse_float(text: &str) -> Result<f64, &'static str> {
    let number = without_underscores(text).and_then(|text| text.parse().ok());
    number.ok_or("expected a number")
}

/// Parses a whole number as Python's `int(text)`, because torchrun parses its options with Python:
/// blanks around it, a sign, and single underscores between digits are accepted.
pub fn int(text: &str) -> Option<i64> {
    without_underscores(text)?.parse().ok()
}

/// Returns a number without the blanks and underscores that Python allows in it.
fn without_underscores(text: &str) -> Option<String> {
    let text = text.trim();
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let is_between = |at: usize| at > 0 && is_digit(at - 1) && is_digit(at + 1);
    let mut underscores = text.match_indices('_');
    let are_all = underscores.all(|(at, _)| is_between(at));
    are_all.then(|| text.replace('_', ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_python_does() {
        for (text, number) in [(" 4 ", 4), ("+4", 4), ("1_0", 10), ("-3", -3), ("007", 7)] {
            assert_eq!(int(text), Some(number), "{text}");
        }
        let none = "_1 1_ 1__0 +-1 +_1 0x1 1.0 a 99999999999999999999";
        for text in none.split(' ').chain(["", " "]) {
            assert_eq!(int(text), None, "{text}");
        }
        let float = |text: &str| parse_float(text).ok();
        let floats = ["0.2", " 1e3 ", "5", "-.5", "1_0.5"].map(float);
        assert_eq!(floats, [0.2, 1e3, 5.0, -0.5, 10.5].map(Some));
        assert_eq!(["", "x", "1_.0", "0x1", "1,5"].map(float), [None; 5]);
    }
}
