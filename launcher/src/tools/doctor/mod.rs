//! `rrun doctor`: checks what an evaluation needs on this machine, and says what to do about what
//! is missing. One line per check.
//!
//! ```text
//!            quick, one after the other          slow, all at once
//! machine ─► output folder ─► GPUs ─► cluster ─► rank binary   Pythons
//!    │              │          │         │          │            │
//!    └──────────────┴── facts ─┴─► Diagnosis ◄──────┴─ answers ──┘ ─► lines or JSON, exit code
//! ```
//! Facts are read in one place and judged in another, so that the judgement is tested without the
//! machine. Each check runs in a thread, and programs in processes, with a time limit: a file
//! server, a driver or an interpreter that hangs is named, and the other checks go on.

mod check;
mod cluster;
mod diagnosis;
mod folder;
mod gpus;
mod machine;
mod output;
mod pythons;
mod rank;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::Environment;
use crate::node::Node;
use crate::tools::doctor::check::{Check, Running};
use crate::tools::doctor::output::{DoctorJson, Lines};

/// Time that a check gets after a program that it runs has been ended at the time limit.
const MARGIN: Duration = Duration::from_secs(3);

/// Check this machine: GPUs, libraries, rendering, disk, limits, simulators, cluster.
///
/// Prints one line per check: `ok`, `note` (good to know), `warning` (works, but badly) or `failed`
/// (will not work), with what to do. Writes a small test file into the output folder, and removes it.
/// The exit code is 0 unless a check failed.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Output folder to check; it need not exist
    #[arg(long, value_name = "DIR", default_value = "outputs")]
    output: PathBuf,

    /// Check also the files, interpreters and modules that the jobs of this file name
    #[arg(long, value_name = "FILE")]
    jobs: Option<PathBuf>,

    /// Time limit of each check
    #[arg(long, value_name = "SECONDS", default_value_t = 30,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,

    /// Print everything as JSON (rrun/doctor/1)
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let node = Node::read()?;
    let env = Environment::inherited();
    let timeout = args.timeout();
    let mut lines = match args.json {
        true => Lines::silent(),
        false => Lines::new(std::io::stderr().is_terminal()),
    };

    for check in quick_checks(args, &node, &env) {
        lines.show(Running::start(check, timeout))?;
    }
    let slow = slow_checks(args, &node, &env, &lines);
    // A program ends at the time limit, and its check a moment later.
    let slow = slow.map(|check| Running::start(check, timeout + MARGIN));
    for check in slow.collect::<Vec<_>>() {
        lines.show(check)?;
    }

    let all = lines.end()?;
    if args.json {
        DoctorJson::new(&all).print()?;
    }
    Ok(match diagnosis::is_healthy(&all) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Returns the checks that take milliseconds.
fn quick_checks(args: &DoctorArgs, node: &Node, env: &Environment) -> Vec<Check> {
    let mut checks = machine::checks(node);
    checks.push(folder::check(args.output.clone()));
    checks.push(gpus::check(node, env));
    checks.extend(cluster::checks(env));
    checks.push(rank::start(node, args.timeout()));
    checks
}

/// Returns the checks that start other programs: what a rank does, if it starts, and the Pythons.
fn slow_checks(
    args: &DoctorArgs,
    node: &Node,
    env: &Environment,
    lines: &Lines,
) -> impl Iterator<Item = Check> {
    let of_rank = match lines.has_failed(rank::NAME) {
        true => Vec::new(),
        false => rank::work(node, env, args.timeout()),
    };
    let of_pythons = match &args.jobs {
        Some(jobs) => vec![pythons::of_jobs(jobs, node, env, args.timeout())],
        None => pythons::of_venvs(node, env, args.timeout()),
    };
    of_rank.into_iter().chain(of_pythons)
}

impl DoctorArgs {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}
