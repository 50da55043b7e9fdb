//! The plan of an evaluation (`eval`): what its ranks run, and where.
//!
//! ```text
//! words, files ──read──► EvalRequest ──seat──► Seats ──plan──► EvalPlan
//!                              LaunchSize ──┘     └── memory of GPUs
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::SystemTime;

use anyhow::bail;
use fit::Need;
use jobs::assign::Assignment;
use jobs::eval_args::EvalArgs;
use jobs::inputs::Asker;
use jobs::journal::Question;
use jobs::layout::RunFolder;
use jobs::live::PAGE_TOKEN_VARIABLE;
use jobs::placement::{Placement, Resources};
use jobs::plan::RunPlan;
use jobs::refusal::{Refusal, Refused};
use jobs::setup::Setup;
use jobs::time::rfc3339;
use jobs::tracking::TrackingArgs;
use report::compare::sequential;
use serde::Serialize;

use crate::cli::Environment;
use crate::node::Node;
use crate::node::nvml::GpuMemory;
use crate::plan::room::{self, GpuBudgets, check_memory, crowd, idlers, limits, useful};
use crate::plan::seating::{LaunchSize, asked_devices};
use crate::plan::server::PagePlan;
use crate::say::Note;

/// The variable that tells ranks how many GPUs a node has, so that they interpret a placement as
/// the launcher does.
pub const GPUS_VARIABLE: &str = "RRUN_GPUS_PER_NODE";

/// A checked evaluation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EvalPlan {
    /// The contents of `plan.json`.
    pub run: RunPlan,
    /// The run folder, as the user named it.
    pub output: PathBuf,
    /// Number of visible GPUs per node.
    pub gpus: usize,
    /// The rule by which ranks get their work.
    #[serde(skip)]
    pub assignment: Assignment,
    /// The placement of ranks and environment workers.
    pub seating: SeatingPlan,
    /// `--accept-changed-jobs`: whether the jobs may differ from those of the existing run.
    pub accepts_changed_jobs: bool,
    /// The sequential test that may end the run (`--stop-when`), and decides the exit code.
    pub early_stop: Option<EarlyStopPlan>,
    /// The experiment trackers that rank 0 logs to.
    #[serde(skip_serializing_if = "TrackingArgs::is_off")]
    pub tracking: TrackingArgs,
    /// The page that is served while the evaluation lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page: Option<PagePlan>,
}

/// A sequential test that may end a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EarlyStopPlan {
    /// What it is to find out.
    pub question: Question,
    /// The reference: the path of a run, or a published rate.
    pub against: String,
    /// The margin, as a difference of rates.
    pub margin: f64,
    /// Probability of a wrong verdict, at most.
    pub level: f64,
}

impl EarlyStopPlan {
    /// Returns the test that the command line asks for.
    pub fn of(args: &EvalArgs) -> Option<Self> {
        Some(Self {
            question: args.question()?,
            against: args.against.as_ref()?.to_string(),
            margin: args.margin,
            level: args.level,
        })
    }
}

/// The placement of a launch, and what is printed about it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeatingPlan {
    /// Environment workers and policies, and their GPUs.
    pub placement: Placement,
    /// What the numbers of the placement count.
    pub resources: Resources,
    /// Whether the user gave a placement; otherwise each rank has its own GPU, together with its
    /// environments.
    pub is_placed: bool,
    /// Number of environments of the largest shared job.
    pub total_num_envs: Option<usize>,
    /// One line per GPU.
    pub allocation: Vec<String>,
    /// One line per worker, if environments are shared.
    pub distribution: Vec<String>,
    /// The memory needed on each GPU.
    pub memory: Vec<Need>,
    /// Warnings about the placement.
    pub warnings: Vec<String>,
}

impl EvalPlan {
    /// Writes `plan.json`, or checks the existing one; this is the last step before ranks are
    /// started. `launch` is the id of the launch that holds the folder. A quick run first removes the
    /// files of the one before.
    ///
    /// # Errors
    /// Refuses a folder that cannot be written, or holds another run by now.
    pub fn settle(&self, launch: Option<&str>) -> Result<(), Refusal> {
        let folder = RunFolder::new(&self.output);
        if self.run.quick {
            RunPlan::clear_quick(&folder)?;
        }
        let mut run = self.run.clone();
        run.launch = launch.map(str::to_owned);
        run.settle(&folder, self.accepts_changed_jobs).map(drop)
    }
}

/// The ranks of a launch, and where they run.
#[derive(Clone, Debug)]
pub struct Seats {
    /// Number of ranks on this node.
    pub nproc: usize,
    /// Environment workers and policies, and their GPUs.
    pub placement: Placement,
    /// What is said about their number.
    pub notes: Vec<Note>,
}

/// The evaluation that the command line of `eval` asks for.
#[derive(Debug)]
pub struct EvalRequest {
    args: EvalArgs,
    setup: Setup,
    page: Option<PagePlan>,
}

impl EvalRequest {
    /// Reads the words after `eval` and the files that they name; `env` resolves `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first thing that is wrong.
    pub fn read(words: &[OsString], env: &Environment) -> Result<Self, Refused> {
        let args = EvalArgs::read_words(words)?;
        let setup = Setup::read(&args, &|name: &str| env.value(name))?;
        setup.check_jobs(&args)?;
        let token = env.text(PAGE_TOKEN_VARIABLE);
        let page = |address| PagePlan::new(address, token.as_deref());
        let page = args.page.map(page).transpose()?;
        Ok(Self { args, setup, page })
    }

    /// Decides the number of ranks on this node and where they run. Not more ranks are started than
    /// can have work, unless a placement or SLURM says how many there are.
    ///
    /// # Errors
    /// Refuses a placement that contradicts the launch or the machine, and ranks that memory cannot
    /// hold.
    pub fn seat(&self, launch: &LaunchSize, node: &Node) -> anyhow::Result<Seats> {
        let (args, setup) = (&self.args, &self.setup);
        if args.quick {
            launch.check_quick()?;
        }
        let (mut nproc, mut placement) = launch.seat(setup, args)?;
        let mut notes = Vec::new();
        if launch.tasks_per_node.is_empty() {
            if setup.components.is_none() {
                let (jobs, shard) = (&setup.file.jobs, setup.assignment.shard);
                let (useful, fewer) = useful(jobs, shard, nproc, launch.nodes.0);
                if useful < nproc {
                    nproc = useful;
                    placement = launch.place(nproc, setup, args);
                }
                notes.extend(fewer);
            }
            if !args.no_memory_check {
                check_memory(nproc, node)?;
            }
            notes.extend(crowd(nproc, node.cpus));
        }
        check_device(args, placement.world_size(), launch.gpus)?;
        self.check_places(&placement, launch.resources())?;
        setup.check(&placement)?;
        Ok(Seats {
            nproc,
            placement,
            notes,
        })
    }

    /// Checks the rest of the evaluation. `memory` is that of the visible GPUs, as far as it is
    /// known. Writes nothing. Returns notes, too.
    ///
    /// # Errors
    /// Refuses the first thing that is wrong.
    pub fn plan(
        self,
        launch: &LaunchSize,
        seats: Seats,
        memory: &[GpuMemory],
        env: &Environment,
    ) -> anyhow::Result<(EvalPlan, Vec<Note>)> {
        let (args, setup) = (self.args, self.setup);
        let (placement, resources) = (seats.placement, launch.resources());
        let world_size = placement.world_size();
        let room = GpuBudgets::new(&args, resources, memory)?;
        if !args.no_memory_check {
            room::check_gpus(&room, &setup, &placement)?;
        }
        let mut notes = seats.notes;
        // With an elastic number of nodes, the number of ranks is not known yet.
        if launch.nodes.0 == launch.nodes.1 {
            notes.extend(idlers(&setup.file.jobs, world_size, setup.assignment));
        }
        let seating = SeatingPlan::new(&setup, placement, resources, &room);
        let folder = RunFolder::new(&setup.output);
        let asker = match launch.nodes.1 {
            1 => Asker::Alone,
            _ => Asker::OneOfSeveral,
        };
        let mut run = RunPlan::new(&args, setup.file, world_size, rfc3339(SystemTime::now()))
            .with_inputs(&folder, asker, &|name| env.value(name));
        let comparison = sequential::of_run(&args, &run)?;
        let changes = match run.quick {
            true => RunPlan::check_quick(&folder).map(|()| Vec::new())?,
            false => run.check(&folder, args.accept_changed_jobs)?,
        };
        notes.extend(setup.notes.into_iter().chain(changes).map(Note::warning));
        if args.gpu_memory.is_some() && resources == Resources::Labels {
            let moot = "--gpu-memory has no effect: there is no GPU here";
            notes.push(Note::warning(moot));
        }
        notes.extend(comparison.and_then(|comparison| limits(&comparison, &run.jobs)));
        notes.extend(seating.notes());
        let plan = EvalPlan {
            run,
            output: setup.output,
            gpus: launch.gpus,
            assignment: setup.assignment,
            seating,
            accepts_changed_jobs: args.accept_changed_jobs,
            early_stop: EarlyStopPlan::of(&args),
            tracking: args.tracking,
            page: self.page,
        };
        Ok((plan, notes))
    }

    /// Checks that one device for all policies does not contradict the placement of each.
    fn check_places(&self, placement: &Placement, resources: Resources) -> anyhow::Result<()> {
        let place = match (&self.setup.components, self.args.workers_per_gpu) {
            (Some(_), _) => "the placement",
            (None, Some(_)) => "--workers-per-gpu",
            (None, None) => return Ok(()),
        };
        for (option, value, asked) in asked_devices(&self.args) {
            let devices = placement.rollout.iter();
            let mut devices = devices
                .map(|process| resources.device(process.gpu()))
                .enumerate();
            let is_other = |device: usize| i64::try_from(device) != Ok(asked);
            let other =
                devices.find_map(|(rank, gpu)| Some((rank, gpu.filter(|it| is_other(*it))?)));
            if let Some((rank, device)) = other {
                bail!(
                    "{option} {value} asks for cuda:{asked}, but {place} puts rank {rank} on \
                     cuda:{device}; leave one of them out"
                );
            }
        }
        Ok(())
    }
}

/// Checks the device of a single rank. Several ranks use their own devices, and report the conflict
/// themselves.
fn check_device(args: &EvalArgs, world_size: usize, gpus: usize) -> anyhow::Result<()> {
    let is_absent = |asked: i64| usize::try_from(asked).map_or(true, |id| id >= gpus);
    for (option, value, asked) in asked_devices(args) {
        if world_size == 1 && is_absent(asked) {
            let visible = match gpus {
                0 => "but no CUDA device is visible here".to_owned(),
                1 => "but only cuda:0 is visible here".to_owned(),
                count => format!("but only cuda:0 to cuda:{} are visible here", count - 1),
            };
            bail!("{option} is {value}, {visible}");
        }
    }
    Ok(())
}
