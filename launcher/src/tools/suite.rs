//! `rrun suite`: writes the jobs file of a known benchmark.
//!
//! ```text
//! jobs/src/suites ─► SuiteRow ─┬─► check ─► jobs.json
//!       --policy, --set ───────┘
//! ```
//! The file is one as users write them. It is checked as `eval` would check it before anything is
//! printed. `rrun list` describes the benchmarks.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use jobs::count::counted;
use jobs::experiment::Change;
use jobs::policies::{self, PolicyType};
use jobs::printable::printable;
use jobs::refusal::{Refusal, meant};
use jobs::rules;
use jobs::suites::{Request, SuiteRow};
use jobs::tree::overlay;
use serde_json::{Map, Value};

use crate::tools::list::simulator;
use crate::tools::print_json;

/// Write the jobs file of a known benchmark with its authors' protocol.
///
/// `rrun list` lists the suites, and `rrun list NAME` describes one: its tasks, episodes, step limit,
/// seed, success, and where its authors define them. The jobs record the suite and the version of its
/// protocol.
#[derive(Debug, clap::Args)]
pub(super) struct SuiteArgs {
    /// Suite to write the jobs of
    #[arg(value_name = "NAME")]
    name: String,

    /// Policy type of all jobs; `rrun list` lists them
    #[arg(long, value_name = "TYPE")]
    policy: String,

    /// A setting of the policy, e.g. model_path=models/mine; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = Change::setting)]
    settings: Vec<Change>,

    /// Tasks by number, range or name, e.g. 0-4,7 [default: all]
    #[arg(long, value_name = "LIST")]
    tasks: Option<String>,

    /// Copies of the environment in each rank
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=4096))]
    num_envs: u64,

    /// Episodes of each task [default: those of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    episodes: Option<u64>,

    /// Steps after which an episode ends [default: those of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    max_episode_steps: Option<u64>,

    /// Seed [default: that of the protocol]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=0x7fff_ffff))]
    seed: Option<u64>,

    /// Interpreter of the simulator, or the folder of its venv [default: .simulators/NAME]
    #[arg(long, value_name = "PATH")]
    python: Option<String>,

    /// Mapping of cameras, states and actions to the names of the policy [default: the suite's]
    #[arg(long, value_name = "FILE")]
    mapping: Option<String>,

    /// Write the jobs file here [default: standard output]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) fn run(args: &SuiteArgs) -> anyhow::Result<ExitCode> {
    let suite = SuiteRow::of(&args.name).ok_or_else(|| unknown(&args.name))?;
    let file = suite.jobs_file(&args.request(suite)?);
    let jobs = jobs::file::parse(&file).map_err(Refusal::new)?;
    jobs.iter()
        .try_for_each(|job| rules::check_job(job, false))?;
    let json = format!("{file:#}");
    match &args.output {
        Some(path) => std::fs::write(path, json + "\n")
            .with_context(|| format!("cannot write `{}`", path.display()))?,
        None => print_json(&json)?,
    }
    eprint!("{}", printable(&note(suite, &file)));
    Ok(ExitCode::SUCCESS)
}

impl SuiteArgs {
    /// Returns what is asked for, with settings that the policy accepts.
    fn request(&self, suite: &'static SuiteRow) -> Result<Request, Refusal> {
        let mut policy_config = Map::new();
        for setting in &self.settings {
            if let Value::Object(setting) = setting.tree() {
                overlay(&mut policy_config, setting);
            }
        }
        if let Some(policy) = PolicyType::of(&self.policy) {
            policies::check(policy, &policy_config).map_err(|err| {
                let policy = policy.name();
                Refusal::new(format_args!(
                    "policy `{policy}`: {err}; use --set KEY=VALUE"
                ))
            })?;
        }
        let tasks = match &self.tasks {
            Some(list) => suite.some_tasks(list)?,
            None => suite.all_tasks(),
        };
        let python = self.python.clone();
        Ok(Request {
            tasks,
            policy_type: self.policy.clone(),
            policy_config,
            num_envs: self.num_envs,
            python: python.unwrap_or_else(|| simulator(suite).path),
            mapping: self.mapping.clone(),
            episodes: self.episodes,
            max_episode_steps: self.max_episode_steps,
            seed: self.seed,
        })
    }
}

fn unknown(found: &str) -> Refusal {
    let names = SuiteRow::all().map(|suite| suite.name.as_str());
    let hint = meant(found, names);
    Refusal::new(format_args!(
        "there is no suite `{found}`{hint}; `rrun list` lists them"
    ))
}

/// Returns what is said about a jobs file that was written.
fn note(suite: &'static SuiteRow, file: &Value) -> String {
    let jobs = file["jobs"].as_array().map_or(&[][..], Vec::as_slice);
    let first = jobs.first().unwrap_or(&Value::Null);
    let mut text = format!(
        "rrun: {}: {} of {} each, protocol {} ({})\n",
        suite.name,
        counted(jobs.len(), "job"),
        counted(&first["num_episodes"], "episode"),
        suite.protocol,
        suite.authors
    );
    let overrides = first["suite"]["overrides"].as_array();
    let names: Vec<&str> = overrides
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !names.is_empty() {
        text += &format!("rrun: not those of the protocol: {}\n", names.join(", "));
    }
    let needed = simulator(suite);
    if first["arena_env_args"]["python"] == *needed.path && !needed.is_there {
        text += &format!("rrun: the simulator {}\n", needed.is_missing());
    }
    text
}
