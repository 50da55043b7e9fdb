//! The command line of `eval`. Launcher and ranks share it: the launcher checks it, and the ranks
//! run it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory as _, FromArgMatches as _, Parser};

use crate::assign::{Assign, Assignment, Only, Shard};
use crate::bytes::ByteSize;
use crate::eval_args::values::{level, listener, points};
use crate::experiment::{Change, is_experiment};
use crate::journal::Question;
use crate::layout::RecordFormat;
use crate::tracking::TrackingArgs;
use crate::usage::{Examples, Headings, option_of_file, parsed, under, within};

mod values;

pub use values::{Against, ExportMode, LogFormat, Screen, StopWhen};

/// Shortest time after which a rank without progress counts as missing: files of other nodes may show
/// late.
const SHORTEST_GATHERING: Duration = Duration::from_secs(60);

/// Examples of `eval`.
pub const EXAMPLES: Examples = &[
    ("rrun eval --jobs jobs.json", "one rank"),
    (
        "rrun --nproc-per-node gpu eval --jobs jobs.json",
        "one rank per GPU",
    ),
    (
        "rrun --dry-run eval --jobs jobs.json",
        "only print the plan",
    ),
    (
        "rrun eval --jobs jobs.json --only 'reach:0-3'",
        "four episodes of a job",
    ),
    ("rrun eval --resume outputs/jobs", "continue a run"),
];

/// Headings of the options of `eval`, each with the first option under it.
const HEADINGS: Headings = &[
    ("assign", "Assignment"),
    ("stop_when", "Early stop"),
    ("num_envs", "Rollout"),
    ("placement", "Devices"),
    ("no_video", "Recording"),
    ("quiet", "Output"),
];

/// Run the jobs of a file and report the results.
///
/// Each rank runs the jobs with `index % world_size == rank`, unless --assign or --shard say
/// otherwise; a job with `total_num_envs` is shared by all ranks. Words of an option may be joined
/// by `-` or `_`.
#[derive(Clone, Debug, Parser)]
#[command(name = "eval", bin_name = "rrun eval", max_term_width = 100)]
#[command(mut_args = under(HEADINGS))]
pub struct EvalArgs {
    /// Jobs file (Arena's jobs.json), or an Experiment of Arena (.yaml)
    #[arg(long, visible_aliases = ["experiment", "experiment-config", "eval-jobs-config"], value_name = "FILE", required_unless_present_any = ["config", "set", "resume"])]
    pub jobs: Option<PathBuf>,

    /// Change the Experiment: shared.PATH=VALUE for all runs, runs.NAME.PATH=VALUE for one; the
    /// value is in Hydra's grammar
    #[arg(value_name = "KEY=VALUE")]
    pub changes: Vec<Change>,

    /// RLinf YAML (cluster, env.eval, rollout, runner), applied over the jobs file; later files
    /// override earlier ones
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,

    /// Override a setting of --config, e.g. env.eval.total_num_envs=8; the value is in Hydra's grammar
    #[arg(long, value_name = "KEY=VALUE", value_parser = Change::setting)]
    pub set: Vec<Change>,

    /// Run folder; the same command again resumes where it stopped [default: outputs/<name of the
    /// jobs file>]
    #[arg(
        long,
        visible_alias = "output-base-dir",
        alias = "experiment-output-directory",
        value_name = "DIR"
    )]
    pub output: Option<PathBuf>,

    /// Resume the run in DIR with its jobs (unless --jobs names others) and its options, on any
    /// number of ranks
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub resume: Option<PathBuf>,

    /// Resume with jobs that differ from those of the run folder: unchanged ones stay finished, the
    /// rest moves to superseded/
    #[arg(long)]
    pub accept_changed_jobs: bool,

    /// With --resume and without --jobs: run what the plan names (programs, modules, servers), even
    /// if you have not started a run with it yourself
    #[arg(long, requires = "resume")]
    pub trust_plan: bool,

    /// Base seed of every job without a seed of its own
    #[arg(long, default_value_t = 42, value_name = "N")]
    pub seed: u64,

    /// Number of steps of jobs that have neither num_episodes nor num_steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub num_steps: Option<u64>,

    /// Continue with the next job when one fails
    #[arg(long)]
    pub continue_on_error: bool,

    /// Attempt a job at most K times before marking it as failed; finished episodes are kept
    #[arg(long, default_value_t = 2, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub job_attempts: u32,

    /// Run only these jobs, with all or some of their episodes, e.g. 'reach:0,3-5;push', in a
    /// separate run folder [default output: outputs/<name of the jobs file>_only]
    #[arg(long, value_name = "JOB[:EPISODES][;…]")]
    pub only: Option<Only>,

    /// See whether everything runs: one episode of each job, without videos and datasets, in a run
    /// folder of its own (DIR_quick), which the next quick run replaces
    #[arg(long, conflicts_with_all = ["resume", "accept_changed_jobs"])]
    pub quick: bool,

    /// Rule that assigns work to ranks; results do not depend on it
    #[arg(long, value_enum, default_value_t, value_name = "RULE")]
    pub assign: Assign,

    /// Unit that the rule assigns to ranks: whole jobs, or the episodes of each job that has a
    /// number of them [default: jobs; with --assign dynamic: episodes]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub shard: Option<Shard>,

    /// End the run before its last episode: when a loss of --margin against --against is excluded or
    /// shown (decided), when it is known whether the rates differ by less (reproduced), or never
    /// (end). Exits with 0 for no such loss or difference, 1 for one, 3 if it is not known, 2 for
    /// errors
    #[arg(long, value_enum, value_name = "WHEN", hide_possible_values = true,
          conflicts_with_all = ["only", "quick"])]
    pub stop_when: Option<StopWhen>,

    /// The reference, with the same jobs and seeds: run folder, report.json with its episodes.jsonl, or
    /// certificate; or a published rate of all jobs together, e.g. 462/500
    #[arg(long, value_name = "RUN|SOLVED/EPISODES", requires = "stop_when")]
    pub against: Option<Against>,

    /// The loss or difference that is to be excluded, in percentage points of solved episodes
    #[arg(
        long,
        value_name = "POINTS",
        value_parser = points,
        default_value = "5",
        requires = "stop_when"
    )]
    pub margin: f64,

    /// Probability that the decision is wrong, at most, however often the test looks
    #[arg(
        long,
        value_name = "SHARE",
        value_parser = level,
        default_value = "0.05",
        requires = "stop_when"
    )]
    pub level: f64,

    /// Override num_envs (or total_num_envs), the number of copies of the environment, in every job
    #[arg(long, value_name = "N", value_parser = within(1..=4096))]
    pub num_envs: Option<usize>,

    /// Number of groups of environments that take turns: while the policy infers for one, another
    /// steps
    #[arg(long, visible_alias = "pipeline-stage-num", default_value_t = 2, value_name = "N", value_parser = within(1..=64))]
    pub pipeline_stages: usize,

    /// Maximum number of rows per inference; with 1, results do not depend on which rows share a
    /// batch, to the last bit [default: 1 on a CPU, all on a GPU]
    #[arg(long, value_name = "N", value_parser = within(1..))]
    pub max_batch: Option<usize>,

    /// Restart an episode at most N times when the process of its environment dies or hangs
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub env_restarts: u32,

    /// Seconds without an answer after which an environment's process is given up, a stall is reported,
    /// and idle ranks take over leases; after twice as long, a rank is missing from the report
    #[arg(long, default_value_t = 300, value_name = "SECONDS",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub stall_timeout: u64,

    /// Replace the process of a Python environment after N episodes, for simulators that leak
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub recycle_after: Option<u64>,

    /// Start an X display in memory for Python environments that name none
    #[arg(long, value_name = "WxHxD", num_args = 0..=1, default_missing_value = "1024x768x24")]
    pub xvfb: Option<Screen>,

    /// Placement: which GPU each rank and environment uses, e.g. 'env: 0-1, rollout: 2-3'; each
    /// rollout process is a rank
    #[arg(long, value_name = "PLACEMENT")]
    pub placement: Option<String>,

    /// Number of ranks that share a GPU: local ranks 0 to N-1 use the first [default: 1]
    #[arg(long, value_name = "N", conflicts_with = "placement",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers_per_gpu: Option<u32>,

    /// Pin the policy to one GPU (single local rank only; several use LOCAL_RANK)
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub policy_device_id: Option<i64>,

    /// Device of the policy: cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    pub policy_device: Option<String>,

    /// Use at most this much memory of each GPU, e.g. 12GiB: checked before the start, and a limit
    /// for the rank's libtorch
    #[arg(long, value_name = "SIZE")]
    pub gpu_memory: Option<ByteSize>,

    /// Run folder of an earlier evaluation: memory is checked as its report has measured it
    #[arg(long, value_name = "RUN")]
    pub measured: Option<PathBuf>,

    /// Start even if weights and declared environments alone need more memory than a GPU has free
    #[arg(long)]
    pub no_memory_check: bool,

    /// EGL device for rendering, an index into all EGL devices [default: that of the rank's GPU,
    /// else any available]
    #[arg(long, value_name = "N")]
    pub egl_device: Option<u32>,

    /// Write no videos
    #[arg(long)]
    pub no_video: bool,

    /// Format of the datasets: one HDF5 file per rank (robomimic, Isaac Lab), or a LeRobot v3.0
    /// folder with images
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub record_format: RecordFormat,

    /// Episodes to write to datasets; `separate` writes failed ones to a second file,
    /// dataset_<job>_failed
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    pub export_mode: ExportMode,

    /// Also write the results as Arena's experiment_runner does [default: with an Experiment]
    #[arg(long)]
    pub arena_output: bool,

    /// Keep camera images in the datasets
    #[arg(long)]
    pub record_cameras: bool,

    /// Print only warnings, errors and results
    #[arg(long)]
    pub quiet: bool,

    /// Format of messages on stderr: lines of text, or one JSON object per line
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// Serve `GET /metrics` for Prometheus on this port of rank 0's machine during the run; HOST
    /// 0.0.0.0 means all addresses of the machine, for a Prometheus elsewhere
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listener)]
    pub metrics: Option<SocketAddr>,

    /// Serve a page of the run on this port of the first node while it lasts: results, pictures of
    /// the environments, ranks, errors; any HOST but a loopback one needs a token in RRUN_PAGE_TOKEN
    #[arg(long, value_name = "[HOST:]PORT", value_parser = listener)]
    pub page: Option<SocketAddr>,

    /// Experiment trackers.
    #[command(flatten)]
    pub tracking: TrackingArgs,

    /// What `--resume` takes over of this command line: options by their long names, a flag with an empty text.
    #[arg(skip)]
    pub given: BTreeMap<String, String>,
}

impl EvalArgs {
    /// Parses the arguments after `eval`.
    ///
    /// # Errors
    /// Returns clap's error, also for `--help`; its `exit_code` and text are to be used.
    pub fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let matches = parsed(Self::command(), EXAMPLES, words, option_of_file)?;
        let options = Self::command();
        let mut args = Self {
            given: taken_over(&options, &matches),
            ..Self::from_arg_matches(&matches)?
        };
        args.tracking.words = tracking_words(&options, &matches);
        let args = if args.quick { args.unrecorded() } else { args };
        let args = args.with_output_of_experiment();
        if args.question().is_some() && args.against.is_none() {
            let reason = "--stop-when needs --against: the run to compare with, or SOLVED/EPISODES";
            return Err(Self::command().error(ErrorKind::MissingRequiredArgument, reason));
        }
        Ok(args)
    }

    /// Disables videos and datasets, as if the options said so.
    fn unrecorded(mut self) -> Self {
        self.no_video = true;
        self.export_mode = ExportMode::None;
        for (option, value) in [("no-video", ""), ("export-mode", "none")] {
            self.given.insert(option.to_owned(), value.to_owned());
        }
        self
    }

    /// Asks for the results in Arena's layout if the jobs are an Experiment, as if the option did.
    fn with_output_of_experiment(mut self) -> Self {
        if self.jobs.as_deref().is_some_and(is_experiment) {
            self.arena_output = true;
            self.given.insert("arena-output".to_owned(), String::new());
        }
        self
    }

    /// Returns what a sequential test is to find out, if there is one.
    pub fn question(&self) -> Option<Question> {
        self.stop_when?.question()
    }

    /// Returns the rule by which jobs or episodes are dealt to ranks.
    pub fn assignment(&self) -> Assignment {
        let shard = if self.assign == Assign::Dynamic {
            Shard::Episodes
        } else {
            Shard::Jobs
        };
        Assignment {
            assign: self.assign,
            shard: self.shard.unwrap_or(shard),
        }
    }

    /// Returns the time without a step after which other ranks take over a rank's leases.
    pub fn lease_timeout(&self) -> Duration {
        Duration::from_secs(self.stall_timeout)
    }

    /// Returns the time without progress after which a rank counts as missing.
    pub fn gather_timeout(&self) -> Duration {
        self.lease_timeout()
            .saturating_mul(2)
            .max(SHORTEST_GATHERING)
    }
}

/// What `--resume` does not take over: it names the run, or what differs from start to start.
const OF_ONE_START: &[&str] = &[
    "jobs",
    "config",
    "set",
    "output",
    "resume",
    "accept-changed-jobs",
    "trust-plan",
    "quick",
    "num-envs",
];

/// Headings whose options `--resume` does not take over either, because they name places, control
/// the output, or send results elsewhere.
const HEADINGS_OF_ONE_START: &[&str] = &["Devices", "Output", TRACKING];

/// Heading of the options about trackers.
const TRACKING: &str = "Tracking";

/// Returns whether `--resume` takes over the option with this long name.
pub(crate) fn is_taken_over(name: &str) -> bool {
    EvalArgs::command()
        .get_arguments()
        .any(|option| option.get_long() == Some(name) && !is_of_one_start(option))
}

fn is_of_one_start(option: &Arg) -> bool {
    let is_under = |heading: &str| HEADINGS_OF_ONE_START.contains(&heading);
    option.get_help_heading().is_some_and(is_under)
        || option
            .get_long()
            .is_some_and(|name| OF_ONE_START.contains(&name))
}

/// Returns the options that were given on the command line and that `--resume` takes over.
fn taken_over(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let options = command.get_arguments();
    let taken_over = options.filter(|option| !is_of_one_start(option));
    taken_over
        .filter_map(|option| given(option, matches))
        .collect()
}

/// Returns the words of the options about trackers.
fn tracking_words(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let options = command.get_arguments();
    let tracking = options.filter(|option| option.get_help_heading() == Some(TRACKING));
    let given = tracking.filter_map(|option| given(option, matches));
    given.map(|(name, value)| word(&name, &value)).collect()
}

/// Returns an option with its value as a word of a command line; the value of a flag is empty.
pub(crate) fn word(name: &str, value: &str) -> String {
    match value {
        "" => format!("--{name}"),
        value => format!("--{name}={value}"),
    }
}

/// Returns the name and value of an option that was given on the command line.
fn given(option: &Arg, matches: &ArgMatches) -> Option<(String, String)> {
    let (id, name) = (option.get_id().as_str(), option.get_long()?);
    let values = matches.try_get_raw(id).ok()?;
    (matches.value_source(id)? == ValueSource::CommandLine).then_some(())?;
    let takes_values = option.get_action().takes_values();
    let values = values.into_iter().flatten().filter(|_| takes_values);
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some((name.to_owned(), values.join(",")))
}

#[cfg(test)]
mod tests;
