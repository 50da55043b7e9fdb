//! The plan of an evaluation (`eval`): reads its command line and files, and checks everything
//! before anything is started.

pub mod crowd;
pub mod dedicated;
mod early_stop;
mod idle;
pub mod model_server;
pub mod preflight;
pub mod room;
pub mod seating;

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use jobs::assign::{Assignment, Shard};
use jobs::eval_args::EvalArgs;
use jobs::inputs::Asker;
use jobs::layout::RunFolder;
use jobs::live::PAGE_TOKEN_VARIABLE;
use jobs::placement::{Placement, Resources};
use jobs::plan::RunPlan;
use jobs::refusal::{Refusal, Refused};
use jobs::setup::Setup;
use jobs::time::rfc3339;
use report::compare::sequential;

use crate::cli::{Cli, Environment};
use crate::node::Node;
use crate::node::nvml::GpuMemory;
use crate::plan::decide::eval::room::GpuBudgets;
use crate::plan::decide::eval::seating::{LaunchSize, asked_devices};
use crate::plan::decide::program::Program;
use crate::plan::eval::{EarlyStopPlan, EvalPlan, SeatingPlan};
use crate::plan::page::PagePlan;
use crate::say::note::Note;

/// The variable that tells ranks how many GPUs a node has, so that they interpret a placement as
/// the launcher does.
pub const GPUS_VARIABLE: &str = "RRUN_GPUS_PER_NODE";

/// The evaluation that the command line of `eval` asks for.
#[derive(Debug)]
pub struct EvalRequest {
    args: EvalArgs,
    setup: Setup,
    page: Option<PagePlan>,
}

impl EvalRequest {
    /// Reads the evaluation that `cli` asks for; returns `None` if it asks for another program.
    ///
    /// # Errors
    /// Returns the errors of [`Self::read`], and an error if the rank binary is missing.
    pub fn of(cli: &Cli, env: &Environment, node: &Node) -> anyhow::Result<Option<Self>> {
        if cli.built_in() != Some("eval") {
            return Ok(None);
        }
        Program::new(cli, env, node)?;
        Ok(Some(Self::read(&cli.args, env)?))
    }

    /// Reads the words after `eval` and the files that they name; `env` resolves `${oc.env:NAME}`.
    ///
    /// # Errors
    /// Refuses the first thing that is wrong.
    pub fn read(words: &[OsString], env: &Environment) -> Result<Self, Refused> {
        let args = EvalArgs::read_words(words)?;
        let variable = |name: &str| {
            env.get(name)
                .map(|value| value.to_string_lossy().into_owned())
        };
        let setup = Setup::read(&args, &variable)?;
        setup.check_jobs(&args)?;
        let token = variable(PAGE_TOKEN_VARIABLE).filter(|token| !token.is_empty());
        let page = |port| PagePlan::new(args.page_host, port, token.as_deref());
        let page = args.page_port.map(page).transpose()?;
        Ok(Self { args, setup, page })
    }

    /// Returns the number of ranks on this node, if the placement or `--workers-per-gpu` determines
    /// it.
    ///
    /// # Errors
    /// Refuses it if that contradicts `launch`.
    pub fn nproc(&self, launch: &LaunchSize) -> Result<Option<usize>, Refusal> {
        if self.setup.components.is_none() && self.args.workers_per_gpu.is_none() {
            return Ok(None);
        }
        Ok(Some(launch.seat(&self.setup, &self.args)?.0))
    }

    /// Returns the number of ranks to start on this node, which is less than `nproc` if not all of
    /// them can have work, and notes about it. With an explicit placement the number is never
    /// reduced.
    ///
    /// # Errors
    /// Refuses them if memory cannot hold the ranks.
    pub fn ranks(
        &self,
        nproc: usize,
        nodes: usize,
        node: &Node,
    ) -> Result<(usize, Vec<Note>), Refusal> {
        let Setup {
            file,
            assignment,
            components,
            ..
        } = &self.setup;
        let units = components
            .is_none()
            .then(|| crowd::units(&file.jobs, *assignment))
            .flatten();
        let by_episodes = Assignment {
            shard: Shard::Episodes,
            ..*assignment
        };
        let (nproc, fewer) = crowd::useful(
            nproc,
            nodes,
            (units, assignment.shard),
            crowd::units(&file.jobs, by_episodes),
        );
        if !self.args.no_memory_check {
            crowd::check(nproc, node)?;
        }
        Ok((
            nproc,
            fewer
                .into_iter()
                .chain(crowd::warning(nproc, node.cpus))
                .collect(),
        ))
    }

    /// Checks the rest of the evaluation. `memory` is that of the visible GPUs, as far as it is
    /// known. Writes nothing.
    ///
    /// # Errors
    /// Refuses the first thing that is wrong.
    pub fn check(self, launch: &LaunchSize, memory: &[GpuMemory]) -> Result<EvalPlan, Refusal> {
        if self.args.quick {
            check_quick(launch)?;
        }
        let (nproc, placement) = launch.seat(&self.setup, &self.args)?;
        let world_size = launch.ranks_per_node(nproc).iter().sum();
        let resources = Resources::new(launch.gpus, launch.nodes.1);
        check_device(&self.args, world_size, launch.gpus)?;
        self.check_places(&placement, resources)?;
        self.setup.check(&placement)?;
        let output = self.setup.output.clone();
        let room = GpuBudgets::new(&self.args, resources, memory).map_err(Refusal::new)?;
        if !self.args.no_memory_check {
            preflight::check(&room, &self.setup, &placement, resources)?;
        }
        // With an elastic number of nodes, the number of ranks is not known yet.
        let is_fixed = launch.nodes.0 == launch.nodes.1;
        let idle = is_fixed
            .then(|| idle::note(&self.setup.file.jobs, world_size, self.setup.assignment))
            .flatten();
        let seating = SeatingPlan::new(&self.setup, placement, resources, &room);
        let asker = match launch.nodes.1 {
            1 => Asker::Alone,
            _ => Asker::OneOfSeveral,
        };
        let mut run = RunPlan::new(
            &self.args,
            self.setup.file,
            world_size,
            rfc3339(SystemTime::now()),
        )
        .started_in(Path::new("."))
        .with_inputs(&RunFolder::new(&output), asker, &|name| {
            std::env::var(name).ok()
        });
        let comparison = sequential::of_run(&self.args, &run)?;
        let accepts_changed_jobs = self.args.accept_changed_jobs;
        let folder = RunFolder::new(&output);
        let changes = match run.quick {
            true => RunPlan::check_quick(&folder).map(|()| Vec::new())?,
            false => run.check(&folder, accepts_changed_jobs)?,
        };
        let is_moot = self.args.gpu_memory.is_some() && resources == Resources::Labels;
        let moot = is_moot.then(|| "--gpu-memory has no effect: there is no GPU here".to_owned());
        let warnings = self
            .setup
            .notes
            .into_iter()
            .chain(changes)
            .chain(moot)
            .map(Note::warning);
        let limits = comparison
            .as_ref()
            .and_then(|comparison| early_stop::note(comparison, &run.jobs));
        let notes = warnings
            .chain(idle)
            .chain(limits)
            .chain(seating.notes())
            .collect();
        Ok(EvalPlan {
            run,
            output,
            gpus: launch.gpus,
            assignment: self.setup.assignment,
            seating,
            accepts_changed_jobs,
            early_stop: EarlyStopPlan::of(&self.args),
            tracking: self.args.tracking,
            page: self.page,
            notes,
        })
    }

    /// Checks that one device for all policies does not contradict the placement of each.
    fn check_places(&self, placement: &Placement, resources: Resources) -> Result<(), Refusal> {
        let (args, place) = (
            &self.args,
            if self.setup.components.is_some() {
                "the placement"
            } else {
                "--workers-per-gpu"
            },
        );
        if self.setup.components.is_none() && args.workers_per_gpu.is_none() {
            return Ok(());
        }
        for (option, value, asked) in asked_devices(args) {
            let devices = placement
                .rollout
                .iter()
                .map(|process| resources.device(process.gpu()));
            let other = devices.enumerate().find_map(|(rank, device)| {
                device
                    .filter(|device| i64::try_from(*device) != Ok(asked))
                    .map(|device| (rank, device))
            });
            if let Some((rank, device)) = other {
                return Err(Refusal::new(format_args!(
                    "{option} {value} asks for cuda:{asked}, but {place} puts rank {rank} on \
                     cuda:{device}; leave one of them out"
                )));
            }
        }
        Ok(())
    }
}

/// Checks that one launcher alone replaces the folder of the last quick run.
fn check_quick(launch: &LaunchSize) -> Result<(), Refusal> {
    if !launch.tasks_per_node.is_empty() {
        let tasks: usize = launch.tasks_per_node.iter().sum();
        return Err(Refusal::new(format_args!(
            "--quick runs under one launcher, but srun starts {tasks}, one for each task; use \
             `srun --ntasks=1 rrun --nproc-per-node N eval --quick …`"
        )));
    }
    match launch.nodes.1 {
        0 | 1 => Ok(()),
        nodes => Err(Refusal::new(format_args!(
            "--quick runs on one node, but this launch has {nodes}; leave --nnodes out"
        ))),
    }
}

/// Checks the device of a single rank. Several ranks use their own devices, and report the conflict
/// themselves.
fn check_device(args: &EvalArgs, world_size: usize, gpus: usize) -> Result<(), Refusal> {
    let is_absent = |asked: i64| usize::try_from(asked).map_or(true, |id| id >= gpus);
    for (option, value, asked) in asked_devices(args) {
        if world_size == 1 && is_absent(asked) {
            let visible = match gpus {
                0 => "but no CUDA device is visible here".to_owned(),
                1 => "but only cuda:0 is visible here".to_owned(),
                count => format!("but only cuda:0 to cuda:{} are visible here", count - 1),
            };
            return Err(Refusal::new(format_args!("{option} is {value}, {visible}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
