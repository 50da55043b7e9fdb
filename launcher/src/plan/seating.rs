//! The placement of an `eval` launch: the number of ranks, the GPUs of ranks and environment
//! workers, whether the nodes can provide them, and the notes printed before the start.

use anyhow::{bail, ensure};
use fit::{MemoryPlanner, Need};
use jobs::eval_args::EvalArgs;
use jobs::job::{Job, Status};
use jobs::placement::{Components, Placement, Resources};
use jobs::setup::Setup;

use crate::plan::eval::SeatingPlan;
use crate::plan::launch::Inputs;
use crate::plan::meeting::Nodes;
use crate::plan::ranks::nproc;
use crate::plan::room::GpuBudgets;
use crate::say::Note;

/// Most lines about GPUs or workers that are printed; `--dry-run=json` shows all of them.
const LINES: usize = 32;

/// The facts about the launch that affect the placement.
#[derive(Clone, Debug)]
pub struct LaunchSize {
    /// Number of ranks on this node, if the user or SLURM has set it.
    pub nproc: Option<usize>,
    /// Their number if nothing else decides it.
    pub usual: usize,
    /// Smallest and largest number of nodes.
    pub nodes: (usize, usize),
    /// Number of ranks on each node, if SLURM has started each of them as a task; otherwise empty,
    /// because all nodes have the same number.
    pub tasks_per_node: Vec<usize>,
    /// Number of visible GPUs on this node.
    pub gpus: usize,
    /// `--virtual-local-rank`: whether each rank sees only its own GPU.
    pub is_virtual: bool,
}

impl LaunchSize {
    /// Returns the size that options and the cluster ask for. If SLURM has started ranks as tasks,
    /// the tasks on a node are the ranks of that node.
    ///
    /// # Errors
    /// Returns an error for an invalid `--nproc-per-node`.
    pub(super) fn new(inputs: Inputs<'_>, nodes: Nodes) -> anyhow::Result<Self> {
        let (cli, gpus) = (inputs.cli, inputs.gpus());
        let usual = match inputs.found.nproc {
            Some(nproc) => nproc,
            None => nproc(&cli.nproc_per_node, inputs.node.cpus, gpus)?,
        };
        let size = Self {
            nproc: cli.is_given("nproc-per-node").then_some(usual),
            usual,
            nodes: (nodes.min, nodes.max),
            tasks_per_node: Vec::new(),
            gpus,
            is_virtual: cli.virtual_local_rank,
        };
        let Some(task) = &inputs.found.task else {
            return Ok(size);
        };
        let nodes = task.tasks_per_node.len();
        Ok(Self {
            nproc: Some(task.tasks_here),
            nodes: (nodes, nodes),
            tasks_per_node: task.tasks_per_node.clone(),
            ..size
        })
    }

    /// Returns what the numbers of a placement count.
    pub fn resources(&self) -> Resources {
        Resources::new(self.gpus, self.nodes.1)
    }

    /// Checks that one launcher alone replaces the folder of the last quick run.
    ///
    /// # Errors
    /// Refuses several tasks or nodes.
    pub(super) fn check_quick(&self) -> anyhow::Result<()> {
        let tasks: usize = self.tasks_per_node.iter().sum();
        match (tasks, self.nodes.1) {
            (0, 0 | 1) => Ok(()),
            (0, nodes) => {
                bail!("--quick runs on one node, but this launch has {nodes}; leave --nnodes out")
            }
            (tasks, _) => bail!(
                "--quick runs under one launcher, but srun starts {tasks}, one for each task; use \
                 `srun --ntasks=1 rrun --nproc-per-node N eval --quick …`"
            ),
        }
    }

    /// Returns the number of ranks on each node, if this one has `nproc`.
    fn ranks_per_node(&self, nproc: usize) -> Vec<usize> {
        if self.tasks_per_node.is_empty() {
            vec![nproc; self.nodes.1]
        } else {
            self.tasks_per_node.clone()
        }
    }

    /// Returns the number of ranks on this node, and where all ranks run, whether the user gave a
    /// placement or not.
    ///
    /// # Errors
    /// Refuses a placement that contradicts the launch or the machine.
    pub fn seat(&self, setup: &Setup, args: &EvalArgs) -> anyhow::Result<(usize, Placement)> {
        let nodes = self.nodes.1;
        if let Some(config) = setup.num_nodes.filter(|config| *config != nodes) {
            bail!("cluster.num_nodes is {config}, --nnodes is {nodes}; give both the same number");
        }
        match &setup.components {
            Some(components) => self.placed(components),
            None => self.unplaced(setup, args),
        }
    }

    fn placed(&self, components: &Components) -> anyhow::Result<(usize, Placement)> {
        let (least, nodes) = self.nodes;
        self.refuse_virtual("the placement")?;
        ensure!(
            least == nodes,
            "--nnodes {least}:{nodes} leaves the number of nodes open; a placement needs a fixed one"
        );
        let placement = Placement::new(components, self.resources())?;
        let found = placement.world_size();
        let tasks: usize = self.tasks_per_node.iter().sum();
        let nproc = match self.nproc {
            Some(_) if tasks > 0 && tasks != found => bail!(
                "srun starts {tasks} tasks, but the placement has {found} rollout worker(s), \
                     and each task is the rank of one; change one of them"
            ),
            Some(nproc) if tasks == 0 && nproc * nodes != found => bail!(
                "--nproc-per-node is {nproc} on {nodes} node(s), {} ranks in all, but the \
                     placement has {found} rollout worker(s), each of which is a rank; leave \
                     --nproc-per-node out, or change one of them",
                nproc * nodes
            ),
            Some(nproc) => nproc,
            None if !found.is_multiple_of(nodes) => bail!(
                "the placement has {found} rollout worker(s), which cannot be divided evenly \
                     among {nodes} nodes"
            ),
            None => found / nodes,
        };
        refuse_strangers(&placement, self.resources(), &self.ranks_per_node(nproc))?;
        Ok((nproc, placement))
    }

    /// Places every rank on a GPU of its own, or as many on one as `--workers-per-gpu` says.
    fn unplaced(&self, setup: &Setup, args: &EvalArgs) -> anyhow::Result<(usize, Placement)> {
        let gpus = self.gpus;
        let Some(per_gpu) = args.workers_per_gpu.map(|per_gpu| per_gpu as usize) else {
            let nproc = self.nproc.unwrap_or(self.usual);
            return Ok((nproc, self.place(nproc, setup, args)));
        };
        self.refuse_virtual("--workers-per-gpu")?;
        let nproc = self.nproc.unwrap_or(per_gpu * gpus.max(1));
        ensure!(
            gpus == 0 || nproc <= per_gpu * gpus,
            "--nproc-per-node {nproc} with --workers-per-gpu {per_gpu} needs {} GPUs, {gpus} are \
             visible",
            nproc.div_ceil(per_gpu)
        );
        Ok((nproc, self.place(nproc, setup, args)))
    }

    /// Places `nproc` ranks of each node for which there is no placement.
    pub(super) fn place(&self, nproc: usize, setup: &Setup, args: &EvalArgs) -> Placement {
        // The ranks decide in the same way (runtime/src/device/mod.rs); without a GPU all are on GPU 0.
        let asked = asked_gpu(setup, args);
        let gpu = |local_rank: usize, ranks: usize| match (args.workers_per_gpu, self.gpus, asked) {
            (_, 0, _) => 0,
            (Some(per_gpu), _, _) => local_rank / per_gpu as usize,
            (None, _, Some(asked)) if ranks == 1 => asked,
            (None, gpus, _) => local_rank % gpus,
        };
        let ranks_per_node = self.ranks_per_node(nproc).into_iter().enumerate();
        let of_node = |(node, ranks): (usize, usize)| {
            (0..ranks).map(move |local_rank| node * self.gpus + gpu(local_rank, ranks))
        };
        Placement::of_ranks(ranks_per_node.flat_map(of_node))
    }

    fn refuse_virtual(&self, by: &'static str) -> anyhow::Result<()> {
        ensure!(
            !self.is_virtual,
            "--virtual-local-rank shows each rank one GPU alone, but {by} gives out all of them; \
             leave one of them out"
        );
        Ok(())
    }
}

/// Returns the GPUs for policies that the command line names, the one that counts first: the option,
/// its value and the CUDA index.
pub fn asked_devices(args: &EvalArgs) -> Vec<(&'static str, String, i64)> {
    let by_id = |id: i64| ("--policy-device-id", id.to_string(), id);
    let by_name = |name: &String| Some(("--policy-device", name.clone(), index(name)?));
    let named = args.policy_device.as_ref().and_then(by_name);
    args.policy_device_id
        .map(by_id)
        .into_iter()
        .chain(named)
        .collect()
}

fn index<T: std::str::FromStr>(device: &str) -> Option<T> {
    device.trim().strip_prefix("cuda:")?.parse().ok()
}

/// Returns the GPU that the only rank of a node takes: that of the command line, otherwise of the
/// first job that names one.
fn asked_gpu(setup: &Setup, args: &EvalArgs) -> Option<usize> {
    if let Some((_, _, gpu)) = asked_devices(args).into_iter().next() {
        return gpu.try_into().ok();
    }
    let pending = |job: &&Job| job.status == Status::Pending;
    let of_job = |job: &Job| match job.policy_config.get("policy_device_id") {
        Some(id) => id.as_u64()?.try_into().ok(),
        None => index(job.policy_config.get("policy_device")?.as_str()?),
    };
    setup.file.jobs.iter().filter(pending).find_map(of_job)
}

/// Refuses ranks on other nodes than their GPUs, and environments on other nodes than their
/// policies.
fn refuse_strangers(
    placement: &Placement,
    resources: Resources,
    ranks_per_node: &[usize],
) -> anyhow::Result<()> {
    let ranks = ranks_per_node.iter().enumerate();
    let node_of_rank = ranks.flat_map(|(node, ranks)| std::iter::repeat_n(node, *ranks));
    for ((rank, process), node) in placement.rollout.iter().enumerate().zip(node_of_rank) {
        let gpu = process.gpu();
        let Some(of_gpu) = resources.node(gpu) else {
            return Ok(());
        };
        ensure!(
            of_gpu == node,
            "rank {rank} runs on node {node}, but its GPU {gpu} is on node {of_gpu}; ranks go to \
             nodes in order, {}",
            each(ranks_per_node)
        );
        for worker in placement.workers(rank) {
            let of_worker = placement
                .env
                .get(worker)
                .and_then(|process| resources.node(process.gpu()));
            if let Some(of_worker) = of_worker.filter(|of_worker| *of_worker != node) {
                bail!(
                    "environment worker {worker} is on node {of_worker}, and rank {rank}, which \
                     has its environments, on node {node}; across nodes, use a policy server \
                     (`rrun serve`)"
                );
            }
        }
    }
    Ok(())
}

/// Returns how many ranks the nodes have, as a phrase: `2 each`, or `2, 1`.
fn each(ranks_per_node: &[usize]) -> String {
    match ranks_per_node {
        [first, others @ ..] if others.iter().all(|ranks| ranks == first) => {
            format!("{first} each")
        }
        uneven => {
            let ranks: Vec<_> = uneven.iter().map(usize::to_string).collect();
            ranks.join(", ")
        }
    }
}

impl SeatingPlan {
    /// Collects the notes about `placement`; `room` is the memory of its GPUs.
    pub fn new(
        setup: &Setup,
        placement: Placement,
        resources: Resources,
        room: &GpuBudgets,
    ) -> Self {
        let total_num_envs = setup.total_num_envs();
        let planner = room.planner(setup, &placement);
        let memory = planner.needs();
        let lines = placement
            .allocation(total_num_envs)
            .into_iter()
            .zip(&memory)
            .map(|(line, need)| match resources {
                Resources::Gpus { .. } => {
                    format!("{line}; {}", need.text(planner.budget(need.gpu)))
                }
                Resources::Labels => line,
            });
        let tight = memory.iter().filter_map(|need| tight(&planner, need));
        let warnings = tight.collect();
        Self {
            allocation: lines.collect(),
            distribution: total_num_envs
                .map(|total| placement.distribution(total))
                .unwrap_or_default(),
            is_placed: setup.components.is_some(),
            total_num_envs,
            resources,
            memory,
            warnings,
            placement,
        }
    }

    /// Returns the notes for stderr before the start.
    pub fn notes(&self) -> Vec<Note> {
        let is_on_gpus = self.resources != Resources::Labels;
        let mut notes = Vec::new();
        if self.is_placed && !is_on_gpus {
            let note = "no GPU here: the numbers of the placement are labels, and everything runs on the CPU";
            notes.push(Note::warning(note));
        }
        if self.is_placed || (is_on_gpus && self.total_num_envs.is_some()) {
            notes.extend(shortened(&self.allocation));
        }
        notes.extend(shortened(&self.distribution));
        notes.extend(
            self.warnings
                .iter()
                .map(|warning| Note::warning(format!("warning: {warning}"))),
        );
        notes
    }
}

fn shortened(lines: &[String]) -> Vec<Note> {
    let mut shown: Vec<_> = lines.iter().take(LINES).cloned().map(Note::info).collect();
    if lines.len() > LINES {
        shown.push(Note::info(format!(
            "… and {} more, see --dry-run=json",
            lines.len() - LINES
        )));
    }
    shown
}

fn tight(planner: &MemoryPlanner<'_>, need: &Need) -> Option<String> {
    let budget = planner.budget(need.gpu);
    need.fit(budget).is_cramped().then(|| {
        format!(
            "GPU {} is tight, {}; use fewer environments, separate GPUs for env and rollout, or \
             use_high_res_cameras: False; `rrun fit` shows how many fit",
            need.gpu,
            need.text(budget)
        )
    })
}
