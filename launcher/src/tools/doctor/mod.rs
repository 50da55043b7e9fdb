//! `rrun doctor`: checks what an evaluation needs on this machine, and says what to do about what
//! is missing. One line per finding.
//!
//! ```text
//! CHECKS ─► a thread with a time limit each ─► Finding: name, grade, what was found, what to do
//!           quick: one after the other      └─► lines or JSON, exit code
//!           slow (start programs): all at once
//! ```
//! A check reads its facts in one place and judges them in another, so that the judgement is tested
//! without the machine. Programs that a check starts have a time limit, too: a file server, a driver
//! or an interpreter that hangs is named, and the other checks go on.

mod check;
mod folder;
mod gpus;
mod machine;
mod pythons;
mod rank;

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use crate::cli::Environment;
use crate::node::Node;
use crate::node::control_group::ControlGroups;
use crate::tools::doctor::check::Pace::{OfRank, Quick, Slow};
use crate::tools::doctor::check::{Check, Lines, Running, is_healthy, json};
use crate::tools::print_json;

/// Time that a check gets after a program that it runs has been ended at the time limit.
const MARGIN: Duration = Duration::from_secs(3);

const KERNEL: &str = "the machine is overloaded or its kernel hangs: see `dmesg`";
const DISK: &str = "the file system does not answer: see `mount` and `dmesg`, or choose another \
                    --output";
const DRIVER: &str = "the driver does not answer: see `dmesg` for Xid errors, and restart the node";
const OURS: &str = "report this as an error of rrun";
const RANK: &str = "a driver or file system does not answer: see `dmesg`";
const PYTHON: &str = "the file system of the interpreter does not answer: see `dmesg`";

/// All checks, in the order of the output: a name, what to do if it hangs, and what reads and judges.
#[rustfmt::skip]
const CHECKS: &[Check] = &[
    Check::new("system", KERNEL, Quick, machine::system),
    Check::new("CPU", KERNEL, Quick, machine::cpu),
    Check::new("memory", KERNEL, Quick, machine::memory),
    Check::new("limits", KERNEL, Quick, machine::limits),
    Check::new("output folder", DISK, Quick, folder::examine),
    Check::new("NVIDIA driver", DRIVER, Quick, gpus::examine),
    Check::new("SLURM", OURS, Quick, machine::slurm),
    Check::new(rank::NAME, RANK, Quick, rank::libraries),
    Check::new("CUDA", RANK, OfRank, rank::cuda),
    Check::new("NCCL", RANK, OfRank, rank::nccl),
    Check::new("EGL", RANK, OfRank, rank::egl),
    Check::new("Python", PYTHON, Slow, pythons::examine),
];

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

/// What the checks look at.
struct Site {
    node: Node,
    env: Environment,
    groups: ControlGroups,
    output: PathBuf,
    jobs: Option<PathBuf>,
    /// Time limit of each program.
    timeout: Duration,
}

pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let site = Arc::new(Site {
        node: Node::read()?,
        env: Environment::inherited(),
        groups: ControlGroups::of_this_process(),
        output: args.output.clone(),
        jobs: args.jobs.clone(),
        timeout: Duration::from_secs(args.timeout),
    });
    let mut lines = Lines::new(args.json, std::io::stderr().is_terminal());
    let (slow, quick): (Vec<&Check>, Vec<_>) = CHECKS.iter().partition(|check| check.pace != Quick);
    for check in quick {
        lines.show(Running::start(check, &site, site.timeout))?;
    }
    let is_no_rank = lines.has_failed(rank::NAME);
    let needed = slow
        .into_iter()
        .filter(|check| check.pace != OfRank || !is_no_rank);
    // A program ends at the time limit, and its check a moment later.
    let running = needed.map(|check| Running::start(check, &site, site.timeout + MARGIN));
    for check in running.collect::<Vec<_>>() {
        lines.show(check)?;
    }

    let all = lines.end()?;
    if args.json {
        print_json(&format!("{:#}", json(&all)))?;
    }
    Ok(ExitCode::from(u8::from(!is_healthy(&all))))
}

impl Site {
    /// Returns the number of GPUs that CUDA shows.
    fn visible_gpus(&self) -> usize {
        self.node.visible_gpus(self.visible_devices().as_deref())
    }

    fn visible_devices(&self) -> Option<String> {
        let list = self.env.get("CUDA_VISIBLE_DEVICES")?;
        Some(list.to_string_lossy().into_owned())
    }
}
