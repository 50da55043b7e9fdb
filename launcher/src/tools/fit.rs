//! `rrun fit`: checks whether an evaluation fits into the memory of its GPUs, and proposes what
//! would, without starting it.
//!
//! ```text
//! jobs, config, placement ─► Setup ─► Launch::seat ─► MemoryPlanner ─► needs, proposals ─► table or JSON
//!             --measured ─► plan and report of a run ─► Measured ──┘
//! --ppo ─► PpoResult ─► table or JSON
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Command;
use fit::ppo::PpoResult;
use fit::{Fit, GpuBudget, MemoryAmount, MemoryPlanner, Need, Proposal};
use jobs::bytes::ByteSize;
use jobs::eval_args::EvalArgs;
use jobs::placement::{Placement, Resources};
use jobs::refusal::Refusal;
use jobs::rules;
use jobs::setup::Setup;
use serde::Serialize;

use crate::cli::Environment;
use crate::node::{Node, kib};
use crate::plan::room::GpuBudgets;
use crate::plan::seating::LaunchSize;
use crate::tools::print_as;

/// Check whether an evaluation fits into the memory of its GPUs, and suggest what would.
///
/// Prints one row per GPU: weights (read from the headers of the checkpoint), activations of the
/// largest batch, captured graphs, contexts and environments, compared with the free memory; and
/// for every job the largest num_envs and batch that fit. Starts nothing. The exit code is 0
/// unless something does not fit.
#[derive(Debug, clap::Args)]
pub(super) struct FitArgs {
    /// Number of ranks on this node, as in the launch [default: as the placement says, else 1]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    nproc_per_node: Option<usize>,

    /// Number of nodes of the launch, which are assumed to be alike
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    nnodes: usize,

    /// Plan for N GPUs per node [default: those here; with --gpu-memory as many as are used]
    #[arg(long, value_name = "N", requires = "gpu_memory",
          value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1024))]
    gpus: Option<usize>,

    /// Check a PPO training of Brax instead, described by its YAML, as WildRobot's are
    #[arg(long, value_name = "FILE", conflicts_with_all = [
        "jobs", "config", "set", "placement", "workers_per_gpu", "num_envs", "max_batch", "pipeline_stages",
        "assign", "shard", "policy_device", "measured", "nproc_per_node", "gpus"])]
    ppo: Option<PathBuf>,

    /// Print everything as JSON (rrun/fit/1)
    #[arg(long)]
    json: bool,

    // Last, because clap gives its headings to whatever follows.
    #[command(flatten)]
    eval: EvalArgs,
}

/// The headings of options of `eval` that affect memory.
const SHOWN: [&str; 3] = ["Assignment", "Rollout", "Devices"];

/// Lets `--ppo` take the place of jobs, and hides options of `eval` that change no memory.
pub(super) fn of_memory(fit: Command) -> Command {
    fit.mut_arg("jobs", |jobs| jobs.required_unless_present("ppo"))
        .mut_args(|option| {
            let heading = option.get_help_heading();
            let is_aside = heading.is_some_and(|heading| !SHOWN.contains(&heading));
            option.hide(is_aside)
        })
}

/// The output of `--json`.
#[derive(Debug, Serialize)]
struct FitJson {
    schema: &'static str,
    fits: bool,
    gpus: Vec<OfGpu>,
    jobs: Vec<Proposal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<OfHost>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct OfGpu {
    #[serde(flatten)]
    need: Need,
    sum: MemoryAmount,
    budget: Option<GpuBudget>,
    fits: Fit,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct OfHost {
    need: MemoryAmount,
    available: Option<ByteSize>,
}

pub(super) fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let fits = match &args.ppo {
        Some(file) => {
            let found = PpoResult::read(file, args.eval.gpu_memory)?;
            print_as(args.json, &found, || found.text())?;
            found.is_good()
        }
        None => plan(args)?,
    };
    Ok(ExitCode::from(u8::from(!fits)))
}

/// Plans an evaluation, and returns whether it fits.
fn plan(args: &FitArgs) -> anyhow::Result<bool> {
    let env = Environment::inherited();
    let node =
        Node::read().map_err(|err| Refusal::at("cannot read the facts of this node", err))?;
    let visible = env.visible_devices();
    let eval = &args.eval;
    let setup = Setup::read(eval, &|name: &str| env.value(name))?;
    rules::check(&setup.file.jobs, &setup.file.path)?;

    let per_gpu = eval.workers_per_gpu.map(|per_gpu| per_gpu as usize);
    let launch = LaunchSize {
        nproc: args.nproc_per_node,
        usual: 1,
        nodes: (args.nnodes, args.nnodes),
        tasks_per_node: Vec::new(),
        gpus: args.gpus(&node, visible.as_deref(), &setup, per_gpu),
        is_virtual: false,
    };
    let (nproc, placement) = launch.seat(&setup, eval)?;
    setup.check(&placement)?;
    let room = match args.eval.gpu_memory {
        Some(size) => GpuBudgets::new(eval, Resources::Labels, &[])?
            .of_size(0..args.planned_gpus(&placement), size),
        None => GpuBudgets::new(
            eval,
            launch.resources(),
            &node.memory_of(visible.as_deref()),
        )?,
    };
    let planner = room.planner(&setup, &placement);
    tell(args, &planner, nproc)
}

impl FitArgs {
    /// Returns the number of GPUs to plan for with `--gpu-memory`: `--gpus`, but at least as many
    /// as the placement names.
    fn planned_gpus(&self, placement: &Placement) -> usize {
        let used = placement.gpus().last().map_or(0, |last| last + 1);
        self.gpus.unwrap_or(used).max(used)
    }

    /// Returns the number of GPUs per node.
    fn gpus(
        &self,
        node: &Node,
        visible: Option<&str>,
        setup: &Setup,
        per_gpu: Option<usize>,
    ) -> usize {
        let found = || node.visible_gpus(visible);
        match (self.gpus, self.eval.gpu_memory) {
            (Some(gpus), _) => gpus,
            (None, None) => found(),
            // The placement names the GPUs that will exist; ranks without a placement have one GPU
            // each, or a share of one.
            (None, Some(_)) if setup.components.is_some() => found(),
            (None, Some(_)) => match self.nproc_per_node {
                Some(nproc) => nproc.div_ceil(per_gpu.unwrap_or(1)),
                None => found().max(1),
            },
        }
    }
}

fn tell(args: &FitArgs, planner: &MemoryPlanner<'_>, nproc: usize) -> anyhow::Result<bool> {
    let of_gpu = |need: Need| {
        let budget = planner.budget(need.gpu);
        OfGpu {
            sum: need.sum(),
            fits: need.fit(budget),
            need,
            budget,
        }
    };
    let gpus: Vec<_> = planner.needs().into_iter().map(of_gpu).collect();
    let found = FitJson {
        schema: "rrun/fit/1",
        fits: !gpus.iter().any(|gpu| gpu.fits.is_too_much()),
        gpus,
        jobs: planner.propose(),
        host: args.eval.measured.as_ref().map(|_| OfHost {
            need: planner.host(nproc),
            available: available(),
        }),
        notes: notes(planner, args),
    };
    print_as(args.json, &found, || {
        let host = found.host.map(OfHost::text);
        let lines: Vec<_> = host
            .iter()
            .chain(&found.notes)
            .map(String::as_str)
            .collect();
        let (needs, jobs) = (planner.table(), Proposal::table(&found.jobs));
        format!("{needs}\n{jobs}\n{}", lines.join("\n"))
    })?;
    Ok(found.fits)
}

/// Returns the memory of this machine that is available without swapping, by the kernel's estimate.
fn available() -> Option<ByteSize> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    kib(&meminfo, "MemAvailable:").map(ByteSize)
}

impl OfHost {
    fn text(self) -> String {
        let need = if self.need.has_unknown {
            "at least"
        } else {
            "about"
        };
        let of = self.available.map_or_else(
            || "what it has is unknown".to_owned(),
            |bytes| format!("{bytes} available"),
        );
        format!("this machine: {need} {} of {of}", self.need.bytes)
    }
}

/// Returns notes about what is unknown, and how it could be found out.
fn notes(planner: &MemoryPlanner<'_>, args: &FitArgs) -> Vec<String> {
    let mut notes = planner.unknown();
    if planner
        .needs()
        .iter()
        .any(|need| planner.budget(need.gpu).is_none())
        && args.eval.gpu_memory.is_none()
    {
        notes.push(
            "the memory of the GPUs is unknown: there is no GPU here, or no NVML; use --gpu-memory \
             24GiB to plan for one"
                .to_owned(),
        );
    }
    if planner.has_queues() {
        notes.push(
            "a rank runs one job after the other: the table shows its job that takes most"
                .to_owned(),
        );
    }
    notes.push("weights are counted; activations, graphs and contexts are estimates".to_owned());
    notes
}
