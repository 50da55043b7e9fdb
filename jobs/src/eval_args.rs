//! The command line of `eval`. Launcher and ranks share it: the launcher checks it, and the ranks
//! run it.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory as _, FromArgMatches as _, Parser};
use serde::{Deserialize, Serialize};

use crate::assign::{Assign, Assignment, Only, Shard};
use crate::bytes::ByteSize;
use crate::config::Override;
use crate::usage::{option_of_file, plain, with_negative_values};

/// Run the jobs of a file and report the results.
///
/// Each rank runs the jobs with `index % world_size == rank`, unless --assign or --shard say
/// otherwise; a job with `total_num_envs` is shared by all ranks. Words of an option may be joined
/// by `-` or `_`.
#[derive(Clone, Debug, Parser)]
#[command(name = "eval", bin_name = "rrun eval", max_term_width = 100)]
pub struct EvalArgs {
    /// Jobs file (Arena's jobs.json)
    #[arg(long, visible_alias = "eval-jobs-config", value_name = "FILE", required_unless_present_any = ["config", "set", "resume"])]
    pub jobs: Option<PathBuf>,

    /// RLinf YAML (cluster, env.eval, rollout, runner), applied over the jobs file; later files
    /// override earlier ones
    #[arg(long, value_name = "FILE")]
    pub config: Vec<PathBuf>,

    /// Override a setting of --config, e.g. env.eval.total_num_envs=8; the value is read as YAML
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<Override>,

    /// Run folder; the same command again resumes where it stopped [default: outputs/<name of the
    /// jobs file>]
    #[arg(long, visible_alias = "output-base-dir", value_name = "DIR")]
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

    /// Rule that assigns work to ranks; results do not depend on it
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "RULE",
        help_heading = "Assignment"
    )]
    pub assign: Assign,

    /// Unit that the rule assigns to ranks: whole jobs, or the episodes of each job that has a
    /// number of them [default: jobs; with --assign dynamic: episodes]
    #[arg(long, value_enum, value_name = "WHAT", help_heading = "Assignment")]
    pub shard: Option<Shard>,

    /// Maximum number of episodes per lease, with --assign dynamic; leases get smaller towards the
    /// end of a job [default: num_envs of the job]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Assignment")]
    pub lease: Option<u64>,

    /// Seconds without a step after which an idle rank takes over another's leases [default:
    /// --stall-timeout]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Assignment")]
    pub lease_timeout: Option<u64>,

    /// Run only these jobs, with all or some of their episodes, e.g. 'reach:0,3-5;push', in a
    /// separate run folder [default output: outputs/<name of the jobs file>_only]
    #[arg(long, value_name = "JOB[:EPISODES][;…]")]
    pub only: Option<Only>,

    /// Override num_envs (or total_num_envs), the number of copies of the environment, in every job
    #[arg(long, value_name = "N", help_heading = "Rollout",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    pub num_envs: Option<usize>,

    /// Number of groups of environments that take turns: while the policy infers for one, another
    /// steps
    #[arg(long, visible_alias = "pipeline-stage-num", default_value_t = 2, value_name = "N",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=64), help_heading = "Rollout")]
    pub pipeline_stages: usize,

    /// Maximum number of rows per inference; with 1, results do not depend on which rows share a
    /// batch, to the last bit [default: 1 on a CPU, all on a GPU]
    #[arg(long, value_name = "N", help_heading = "Rollout",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_batch: Option<usize>,

    /// Restart an episode at most N times when the process of its environment dies or hangs
    #[arg(long, default_value_t = 3, value_name = "N", help_heading = "Rollout")]
    pub env_restarts: u32,

    /// Seconds without an answer after which an environment's process is given up, and a stall is
    /// reported
    #[arg(long, default_value_t = 300, value_name = "SECONDS", help_heading = "Rollout",
          value_parser = clap::value_parser!(u64).range(1..))]
    pub stall_timeout: u64,

    /// Replace the process of a Python environment after N episodes, for simulators that leak
    #[arg(long, value_name = "N", help_heading = "Rollout", value_parser = clap::value_parser!(u64).range(1..))]
    pub recycle_after: Option<u64>,

    /// Start an X display in memory for Python environments that name none
    #[arg(long, value_name = "WxHxD", num_args = 0..=1, default_missing_value = "1024x768x24",
          help_heading = "Rollout")]
    pub xvfb: Option<Screen>,

    /// Placement: which GPU each rank and environment uses, e.g. 'env: 0-1, rollout: 2-3'; each
    /// rollout process is a rank
    #[arg(long, value_name = "PLACEMENT", help_heading = "Devices")]
    pub placement: Option<String>,

    /// Number of ranks that share a GPU: local ranks 0 to N-1 use the first [default: 1]
    #[arg(long, value_name = "N", help_heading = "Devices", conflicts_with = "placement",
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers_per_gpu: Option<u32>,

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

    /// Use at most this much memory of each GPU, e.g. 12GiB: checked before the start, and a limit
    /// for the rank's libtorch
    #[arg(long, value_name = "SIZE", help_heading = "Devices")]
    pub gpu_memory: Option<ByteSize>,

    /// Read the memory use of environments from this file, as measured by `rrun fit --probe`
    #[arg(long, value_name = "FILE", help_heading = "Devices")]
    pub measured: Option<PathBuf>,

    /// Start even if weights and declared environments alone need more memory than a GPU has free
    #[arg(long, help_heading = "Devices")]
    pub no_memory_check: bool,

    /// EGL device for rendering, an index into all EGL devices [default: that of the rank's GPU,
    /// else any available]
    #[arg(long, value_name = "N", help_heading = "Devices")]
    pub egl_device: Option<u32>,

    /// Write no videos
    #[arg(long, help_heading = "Recording")]
    pub no_video: bool,

    /// Size of each camera's image in a video [default: as rendered]
    #[arg(long, value_name = "HxW", help_heading = "Recording")]
    pub video_size: Option<VideoSize>,

    /// Bit rate of videos, in bits per second
    #[arg(long, default_value_t = 1_500_000, value_name = "N", help_heading = "Recording",
          value_parser = clap::value_parser!(u32).range(10_000..))]
    pub video_bitrate: u32,

    /// Write no datasets
    #[arg(long, help_heading = "Recording")]
    pub no_dataset: bool,

    /// Format of the datasets: one HDF5 file per rank (robomimic, Isaac Lab), or a LeRobot v3.0
    /// folder with images
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "FORMAT",
        help_heading = "Recording"
    )]
    pub record_format: RecordFormat,

    /// Episodes to write to datasets; `separate` writes failed ones to a second file,
    /// dataset_<job>_failed
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "MODE",
        help_heading = "Recording"
    )]
    pub export_mode: ExportMode,

    /// Also write one video per episode, with success or failure in its name
    #[arg(long, help_heading = "Recording")]
    pub video_per_episode: bool,

    /// Also write a video of all environments of a worker, side by side
    #[arg(long, help_heading = "Recording")]
    pub video_grid: bool,

    /// Cameras to show in videos, from left to right [default: all]
    #[arg(
        long,
        value_name = "NAME,…",
        value_delimiter = ',',
        help_heading = "Recording"
    )]
    pub video_cameras: Option<Vec<String>>,

    /// Keep camera images in the datasets
    #[arg(long, help_heading = "Recording")]
    pub record_cameras: bool,

    /// Print only warnings, errors and results
    #[arg(long, help_heading = "Output")]
    pub quiet: bool,

    /// Format of messages on stderr: lines of text, or one JSON object per line
    #[arg(long, value_enum, value_name = "FORMAT", help_heading = "Output")]
    pub log_format: Option<LogFormat>,

    /// Serve `GET /metrics` for Prometheus on this port of rank 0's machine during the run
    #[arg(long, value_name = "PORT", help_heading = "Output", value_parser = clap::value_parser!(u16).range(1..))]
    pub metrics_port: Option<u16>,

    /// Address or host name to serve metrics on; 0.0.0.0 means all addresses of the machine, for a
    /// Prometheus elsewhere
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = address,
        default_value = "127.0.0.1",
        requires = "metrics_port",
        help_heading = "Output"
    )]
    pub metrics_host: IpAddr,

    /// Seconds without progress after which a rank is missing from the report
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub gather_timeout: u64,

    /// What `--resume` takes over of this command line: options by their long names, a flag with an empty text.
    #[arg(skip)]
    pub given: BTreeMap<String, String>,
}

/// Format of messages on stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Human-readable lines.
    Text,
    /// One JSON object per line.
    Json,
}

/// Parses an IP address or resolves a host name. Of several addresses, an IPv4 address is chosen,
/// because every client can reach it.
fn address(text: &str) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let found = (text, 0).to_socket_addrs();
    let found: Vec<_> = found
        .map_err(|err| format!("it is no address, and cannot be resolved: {err}"))?
        .collect();
    let chosen = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    chosen
        .map(SocketAddr::ip)
        .ok_or_else(|| "it is no address, and the name has none".to_owned())
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
    "num-envs",
    "lease",
    "lease-timeout",
];

/// Headings whose options `--resume` does not take over either, because they name places or control
/// the output.
const HEADINGS_OF_ONE_START: &[&str] = &["Devices", "Output"];

/// Format of a dataset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordFormat {
    /// One HDF5 file, as in robomimic and Isaac Lab.
    #[default]
    Hdf5,
    /// A folder, as in LeRobot v3.0.
    Lerobot,
}

/// Which episodes a dataset has: Isaac Lab's `DatasetExportMode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExportMode {
    /// All episodes.
    #[default]
    All,
    /// Only episodes that succeeded.
    Succeeded,
    /// Failed episodes in a separate file.
    Separate,
    /// No datasets.
    None,
}

/// Size of one camera's image in a video, written as `HEIGHTxWIDTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VideoSize {
    /// Height in pixels, 16 to 4096.
    pub height: u32,
    /// Width in pixels, 16 to 4096.
    pub width: u32,
}

impl std::str::FromStr for VideoSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let sides = text
            .split_once('x')
            .map(|(height, width)| (height.parse(), width.parse()));
        match sides {
            Some((Ok(height @ 16..=4096), Ok(width @ 16..=4096))) => Ok(Self { height, width }),
            _ => Err(format!(
                "`{text}` is no size, HEIGHTxWIDTH with 16 to 4096 is needed, as 224x224"
            )),
        }
    }
}

/// Size of an X display, written as `WIDTHxHEIGHTxDEPTH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Screen {
    /// Width in pixels, 16 to 16384.
    pub width: u32,
    /// Height in pixels, 16 to 16384.
    pub height: u32,
    /// Bits per pixel: 8, 16 or 24.
    pub depth: u32,
}

impl std::str::FromStr for Screen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Vec<Option<u32>> = text.split('x').map(|number| number.parse().ok()).collect();
        match numbers[..] {
            [
                Some(width @ 16..=16384),
                Some(height @ 16..=16384),
                Some(depth @ (8 | 16 | 24)),
            ] => Ok(Self {
                width,
                height,
                depth,
            }),
            _ => Err(format!(
                "`{text}` is no screen, WIDTHxHEIGHTxDEPTH is needed, as 1024x768x24"
            )),
        }
    }
}

impl std::fmt::Display for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}x{}", self.width, self.height, self.depth)
    }
}

impl EvalArgs {
    /// Parses the arguments after `eval`.
    ///
    /// # Errors
    /// Returns clap's error, also for `--help`; its `exit_code` and text are to be used.
    pub fn parse_words(words: &[OsString]) -> Result<Self, clap::Error> {
        let name = std::iter::once(OsString::from("eval"));
        let words = name.chain(words.iter().map(|word| with_dashes(word)));
        let mut options = with_negative_values(Self::command());
        let matches = options
            .try_get_matches_from_mut(words)
            .map_err(|err| plain(err, &mut options, option_of_file))?;
        let command = Self::command();
        let given = command
            .get_arguments()
            .filter_map(|option| given(option, &matches))
            .collect();
        let args = Self {
            given,
            ..Self::from_arg_matches(&matches)?
        };
        match (args.assign, args.lease.or(args.lease_timeout)) {
            (Assign::Dynamic, _) | (_, None) => Ok(args),
            (Assign::Modulo | Assign::Block | Assign::Shuffle, Some(_)) => {
                let reason = "--lease and --lease-timeout are of no use without --assign dynamic";
                Err(Self::command().error(ErrorKind::ArgumentConflict, reason))
            }
        }
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
        Duration::from_secs(self.lease_timeout.unwrap_or(self.stall_timeout))
    }

    /// Returns the time without a sign of life after which a rank counts as missing.
    pub fn gather_timeout(&self) -> Duration {
        Duration::from_secs(self.gather_timeout)
    }
}

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

/// Returns the name and value of an option that was given on the command line and that `--resume`
/// takes over.
fn given(option: &Arg, matches: &ArgMatches) -> Option<(String, String)> {
    let (id, name) = (option.get_id().as_str(), option.get_long()?);
    if is_of_one_start(option) || matches.try_get_raw(id).is_err() {
        return None;
    }
    (matches.value_source(id)? == ValueSource::CommandLine).then_some(())?;
    let takes_values = option.get_action().takes_values();
    let values = matches
        .get_raw(id)
        .into_iter()
        .flatten()
        .filter(|_| takes_values);
    let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
    Some((name.to_owned(), values.join(",")))
}

/// Replaces underscores in the name of an option by dashes: `--a_b=c_d` becomes `--a-b=c_d`.
pub fn with_dashes(word: &OsStr) -> OsString {
    let Some(text) = word.to_str().filter(|text| text.starts_with("--")) else {
        return word.to_owned();
    };
    match text.split_once('=') {
        Some((name, value)) => format!("{}={value}", name.replace('_', "-")).into(),
        None => text.replace('_', "-").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<EvalArgs, clap::Error> {
        EvalArgs::parse_words(&words.iter().map(Into::into).collect::<Vec<_>>())
    }

    #[test]
    fn both_spellings_are_read_and_values_are_left_alone() {
        let args = parse(&[
            "--eval_jobs_config=my_jobs.json",
            "--policy_device_id",
            "1",
            "--continue_on_error",
        ])
        .unwrap();
        assert_eq!(
            (
                args.jobs.as_deref().and_then(std::path::Path::to_str),
                args.policy_device_id
            ),
            (Some("my_jobs.json"), Some(1))
        );
        assert!(args.continue_on_error);
    }

    #[test]
    fn jobs_come_from_a_jobs_file_or_from_a_config() {
        let args = parse(&[
            "--config",
            "a.yaml",
            "--config",
            "b.yaml",
            "--placement",
            "env,rollout: all",
        ])
        .unwrap();
        assert_eq!((args.jobs, args.config.len()), (None, 2));
        assert_eq!(parse(&["--resume", "out"]).unwrap().jobs, None);
        assert!(parse(&["--resume", "out", "--output", "out"]).is_err());
        assert!(
            parse(&[])
                .unwrap_err()
                .to_string()
                .contains("--jobs <FILE>")
        );
    }

    #[test]
    fn memory_of_a_gpu_has_a_unit_and_is_of_one_start() {
        let args = parse(&["--jobs", "a", "--gpu_memory", "12GiB", "--no-memory-check"]).unwrap();
        assert_eq!(
            (args.gpu_memory, args.no_memory_check),
            (Some(ByteSize(12 << 30)), true)
        );
        assert!(
            args.given.is_empty(),
            "another machine has other GPUs: {:?}",
            args.given
        );
        let err = parse(&["--jobs", "a", "--gpu-memory", "much"])
            .unwrap_err()
            .to_string();
        assert!(
            err.contains("as 12GiB, 12GB, 12288MiB or a number of bytes"),
            "{err}"
        );
    }

    #[test]
    fn metrics_are_answered_at_an_address_or_at_that_of_a_name() {
        let host =
            |host: &str| parse(&["--jobs", "a", "--metrics-port", "9", "--metrics-host", host]);
        assert!(host("localhost").unwrap().metrics_host.is_loopback());
        assert_eq!(host("::1").unwrap().metrics_host.to_string(), "::1");
        let err = host("no such host").unwrap_err().to_string();
        assert!(
            err.contains("'--metrics-host <ADDRESS>': it is no address, and cannot be resolved: "),
            "{err}"
        );
    }

    #[test]
    fn what_was_meant_is_said() {
        let refusal = |words: &[&str]| parse(words).unwrap_err().to_string();
        for (words, text) in [
            (
                &["--jobs", "a", "--seed", "-1"][..],
                "--seed is -1, a whole number that is not below 0 is needed",
            ),
            (
                &["--jobs", "a", "--num-envs=-2"],
                "--num-envs is -2, a whole number",
            ),
            (
                &["jobs.json"],
                "`jobs.json` stands alone; write `--jobs jobs.json`",
            ),
            (
                &["two_gpus.yaml"],
                "`two_gpus.yaml` stands alone; write `--config two_gpus.yaml`",
            ),
            (
                &["--nproc_per_node", "2"],
                "--nproc-per-node is an option of the launcher and goes before `eval`",
            ),
            (&["--jobs", "a", "b"], "unexpected argument 'b' found"),
        ] {
            assert!(refusal(words).contains(text), "{}", refusal(words));
        }
        assert_eq!(
            parse(&["--jobs", "a", "--policy-device-id", "-1"])
                .unwrap()
                .policy_device_id,
            Some(-1)
        );
    }

    #[test]
    fn leases_are_there_with_dynamic_only_and_are_of_episodes() {
        let args = parse(&[
            "--jobs",
            "a",
            "--assign",
            "dynamic",
            "--lease",
            "2",
            "--stall-timeout",
            "7",
        ])
        .unwrap();
        assert_eq!(
            (args.assignment().shard, args.lease_timeout()),
            (Shard::Episodes, Duration::from_secs(7))
        );
        let err = parse(&["--jobs", "a", "--lease", "2"]).unwrap_err();
        assert!(
            err.to_string()
                .contains("of no use without --assign dynamic"),
            "{err}"
        );
    }

    #[test]
    fn a_size_that_is_none_is_refused_with_an_example() {
        assert!(
            parse(&["--jobs", "a", "--video-size", "224"])
                .unwrap_err()
                .to_string()
                .contains("as 224x224")
        );
        let screen = |words: &[&str]| {
            parse(&[&["--jobs", "a"], words].concat()).map(|args| args.xvfb.map(|s| s.to_string()))
        };
        assert_eq!(screen(&["--xvfb"]).unwrap().as_deref(), Some("1024x768x24"));
        assert_eq!(
            screen(&["--xvfb", "640x480x16", "--no-video"])
                .unwrap()
                .as_deref(),
            Some("640x480x16")
        );
        assert!(
            screen(&["--xvfb=640x480"])
                .unwrap_err()
                .to_string()
                .contains("as 1024x768x24")
        );
        let size = parse(&["--jobs", "a", "--video-size", "64x96"])
            .unwrap()
            .video_size;
        assert_eq!(
            size,
            Some(VideoSize {
                height: 64,
                width: 96
            })
        );
    }
}
