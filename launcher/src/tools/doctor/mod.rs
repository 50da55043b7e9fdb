//! `rrun doctor`: checks what an evaluation needs on this machine, and says what to do about what
//! is missing. One line per finding.
//!
//! ```text
//! check ─► a thread with a time limit ─► Finding: name, grade, what was found, what to do
//!          quick: one after the other        └─► lines or JSON, exit code
//!          slow (starts programs): all at once
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

use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jobs::finding::Finding;

use crate::cli::Environment;
use crate::node::Node;
use crate::node::control_group::ControlGroups;
use crate::tools::doctor::check::{Running, is_healthy, json, line, summary};
use crate::tools::{print_json, print_line};

/// Time that a check gets beside that of the programs that it runs.
const MARGIN: Duration = Duration::from_secs(3);

/// Programs that a check runs one after the other, at most.
const PROGRAMS: u32 = 2;

/// What reads and judges.
type Examine = fn(&Site) -> Vec<Finding>;

/// Checks that only read files, in the order of the output.
const QUICK: [(&str, Examine); 6] = [
    ("system", machine::system),
    ("CPU", machine::cpu),
    ("memory", machine::memory),
    ("limits", machine::limits),
    ("output folder", folder::examine),
    ("NVIDIA driver", gpus::examine),
];

/// Checks that start programs.
const SLOW: [(&str, Examine); 2] = [("rrun-rank", rank::examine), ("Python", pythons::examine)];

/// Check this machine: GPUs, libraries, rendering, disk, limits, simulators.
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
    let is_terminal = !args.json && io::stderr().is_terminal();
    let mut all = Vec::new();
    let mut show = |check: Running| {
        let found = check.results(is_terminal);
        if !args.json {
            found.iter().try_for_each(|one| print_line(line(one)))?;
        }
        all.extend(found);
        io::Result::Ok(())
    };
    let start = |(name, examine): (&'static str, Examine), timeout| {
        let site = Arc::clone(&site);
        Running::start(name, timeout, move || examine(&site))
    };
    for check in QUICK {
        show(start(check, site.timeout))?;
    }
    let timeout = site.timeout * PROGRAMS + MARGIN;
    let running = SLOW.map(|check| start(check, timeout));
    running.into_iter().try_for_each(&mut show)?;

    if args.json {
        print_json(&format!("{:#}", json(&all)))?;
    } else {
        print_line("")?;
        print_line(summary(&all))?;
    }
    Ok(ExitCode::from(u8::from(!is_healthy(&all))))
}

impl Site {
    /// Returns the number of GPUs that CUDA shows.
    fn visible_gpus(&self) -> usize {
        self.node
            .visible_gpus(self.env.visible_devices().as_deref())
    }
}
