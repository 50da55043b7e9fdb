//! Who sits where in a launch of `eval`: how many ranks that takes, whether the nodes can do it, and what is said about
//! it before the start.

use jobs::memory::{Fit, Need, Planner};
use jobs::placement::{Placement, PlacementError, Resources};
use jobs::setup::Setup;
use serde::Serialize;

use crate::plan::room::Room;
use crate::say::Note;

/// Lines about GPUs or workers that are printed; the plan of `--dry-run` has them all.
const LINES: usize = 32;

/// What of the launch bears on it.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Ranks of this node, if the user or SLURM says.
    pub nproc: Option<usize>,
    /// Nodes, the least and the most.
    pub nodes: (usize, usize),
    /// Visible GPUs of this node.
    pub gpus: usize,
    /// `--virtual-local-rank`.
    pub is_virtual: bool,
}

/// A seating that cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SeatingError {
    /// The grammar, or a GPU that is not there.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// `--nproc-per-node` says otherwise.
    #[error(
        "--nproc-per-node is {nproc} on {nodes} node(s), {} ranks in all, but the placement has {found} rollout \
         worker(s), each of which is a rank; leave --nproc-per-node out, or change one of them", .nproc * .nodes
    )]
    Ranks {
        /// Given.
        nproc: usize,
        /// Nodes.
        nodes: usize,
        /// Processes of `rollout`.
        found: usize,
    },
    /// Ranks that nodes cannot share.
    #[error("the placement has {found} rollout worker(s), which cannot be shared evenly by {nodes} nodes")]
    Nodes {
        /// Processes of `rollout`.
        found: usize,
        /// Nodes.
        nodes: usize,
    },
    /// `--nnodes 1:4`.
    #[error("--nnodes {}:{} leaves the number of nodes open; a placement needs a fixed one", .0.0, .0.1)]
    Elastic((usize, usize)),
    /// `cluster.num_nodes`.
    #[error("cluster.num_nodes is {config}, --nnodes is {nodes}; give both the same number")]
    NumNodes {
        /// In the configuration.
        config: usize,
        /// Of the launch.
        nodes: usize,
    },
    /// A rank on another node than its GPU.
    #[error(
        "rank {rank} runs on node {node}, but its GPU {gpu} is on node {of_gpu}; ranks go to nodes in order, {each} each"
    )]
    Elsewhere {
        /// The rank.
        rank: usize,
        /// Its node.
        node: usize,
        /// Its GPU.
        gpu: usize,
        /// The node of that.
        of_gpu: usize,
        /// Ranks of a node.
        each: usize,
    },
    /// Environments on another node than their policy.
    #[error(
        "environment worker {worker} is on node {of_worker}, and rank {rank}, which has its environments, on node \
         {of_rank}; across nodes a policy server is needed, `rrun serve`"
    )]
    AcrossNodes {
        /// The worker.
        worker: usize,
        /// Its node.
        of_worker: usize,
        /// The rank.
        rank: usize,
        /// Its node.
        of_rank: usize,
    },
    /// `--workers-per-gpu` with too many ranks.
    #[error("--nproc-per-node {nproc} with --workers-per-gpu {per_gpu} needs {} GPUs, {gpus} are visible", .nproc.div_ceil(*.per_gpu))]
    Crowd {
        /// Ranks of this node.
        nproc: usize,
        /// Ranks of a GPU.
        per_gpu: usize,
        /// Visible GPUs.
        gpus: usize,
    },
    /// `--virtual-local-rank` hides GPUs.
    #[error("--virtual-local-rank shows each rank one GPU alone, but {0} gives out all of them; leave one of them out")]
    Virtual(&'static str),
    /// A device for all policies beside a place for each.
    #[error("{option} asks for cuda:{asked}, but {place} puts rank {rank} on cuda:{device}; leave one of them out")]
    Device {
        /// `--policy-device-id 1` or `--policy-device cuda:1`.
        option: String,
        /// The number asked for.
        asked: i64,
        /// What says otherwise.
        place: &'static str,
        /// The first rank for which it does.
        rank: usize,
        /// CUDA's index of its GPU.
        device: usize,
    },
}

/// Who sits where.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seating {
    /// Environment workers and policies, and their GPUs.
    pub placement: Placement,
    /// What the numbers count.
    pub resources: Resources,
    /// Whether the user placed them; otherwise each rank has its own GPU, and its environments with it.
    pub is_placed: bool,
    /// Environments of the largest shared job.
    pub total_num_envs: Option<usize>,
    /// One line a GPU.
    pub allocation: Vec<String>,
    /// One line a worker, where environments are shared out.
    pub distribution: Vec<String>,
    /// What each GPU will hold.
    pub memory: Vec<Need>,
    /// What should be thought about.
    pub warnings: Vec<String>,
}

impl Launch {
    /// The same of a rank that SLURM has started as a task: its node is that of its fellows.
    pub fn of_task(self, local_world_size: usize, nodes: usize) -> Self {
        Self { nproc: Some(local_world_size), nodes: (nodes, nodes), ..self }
    }

    /// Ranks of this node and who sits where, for jobs that are placed or not.
    ///
    /// # Errors
    /// [`SeatingError`] for what contradicts the launch or the machine.
    pub fn seat(self, setup: &Setup, per_gpu: Option<usize>) -> Result<(usize, Placement), SeatingError> {
        let Self { nproc, nodes: (_, nodes), gpus, .. } = self;
        if let Some(config) = setup.num_nodes.filter(|config| *config != nodes) {
            return Err(SeatingError::NumNodes { config, nodes });
        }
        let Some(components) = &setup.components else {
            return self.unplaced(per_gpu);
        };
        self.refuse_virtual("the placement")?;
        if self.nodes.0 != nodes {
            return Err(SeatingError::Elastic(self.nodes));
        }
        let resources = Resources::new(gpus, nodes);
        let placement = Placement::new(components, resources)?;
        let found = placement.world_size();
        let each = match nproc {
            Some(nproc) if nproc * nodes != found => return Err(SeatingError::Ranks { nproc, nodes, found }),
            Some(nproc) => nproc,
            None if !found.is_multiple_of(nodes) => return Err(SeatingError::Nodes { found, nodes }),
            None => found / nodes,
        };
        refuse_strangers(&placement, resources, each)?;
        Ok((each, placement))
    }

    /// Every rank on a GPU of its own, or `per_gpu` of them on one.
    fn unplaced(self, per_gpu: Option<usize>) -> Result<(usize, Placement), SeatingError> {
        let Self { nproc, nodes: (_, nodes), gpus, .. } = self;
        if per_gpu.is_some() {
            self.refuse_virtual("--workers-per-gpu")?;
        }
        let nproc = nproc.or(per_gpu.map(|per_gpu| per_gpu * gpus.max(1))).unwrap_or(1);
        if let Some(per_gpu) = per_gpu.filter(|per_gpu| gpus > 0 && nproc > per_gpu * gpus) {
            return Err(SeatingError::Crowd { nproc, per_gpu, gpus });
        }
        // As the ranks themselves decide, runtime/src/device.rs; without a GPU all are called after GPU 0.
        let gpu = |local_rank: usize| match (per_gpu, gpus) {
            (_, 0) => 0,
            (Some(per_gpu), _) => local_rank / per_gpu,
            (None, gpus) => local_rank % gpus,
        };
        let of_node = |node: usize| (0..nproc).map(move |local_rank| node * gpus + gpu(local_rank));
        Ok((nproc, Placement::of_ranks((0..nodes).flat_map(of_node))))
    }

    fn refuse_virtual(self, by: &'static str) -> Result<(), SeatingError> {
        if self.is_virtual { Err(SeatingError::Virtual(by)) } else { Ok(()) }
    }
}

/// Refuses ranks that are not where their GPU is, and environments that are not where their policy is.
fn refuse_strangers(placement: &Placement, resources: Resources, each: usize) -> Result<(), SeatingError> {
    for (rank, process) in placement.rollout.iter().enumerate() {
        let (gpu, node) = (process.gpu(), rank / each);
        let Some(of_gpu) = resources.node(gpu) else { return Ok(()) };
        if of_gpu != node {
            return Err(SeatingError::Elsewhere { rank, node, gpu, of_gpu, each });
        }
        for worker in placement.workers(rank) {
            let of_worker = placement.env.get(worker).and_then(|process| resources.node(process.gpu()));
            if let Some(of_worker) = of_worker.filter(|of_worker| *of_worker != node) {
                return Err(SeatingError::AcrossNodes { worker, of_worker, rank, of_rank: node });
            }
        }
    }
    Ok(())
}

impl Seating {
    /// Everything that is said about `placement`; `room` is what its GPUs have.
    pub fn new(setup: &Setup, placement: Placement, resources: Resources, room: &Room) -> Self {
        let total_num_envs = setup.total_num_envs();
        let planner = room.planner(setup, &placement);
        let memory = planner.needs();
        let lines = placement.allocation(total_num_envs).into_iter().zip(&memory).map(|(line, need)| match resources {
            Resources::Gpus { .. } => format!("{line}; {}", need.text(planner.budget(need.gpu))),
            Resources::Labels => line,
        });
        let tight = memory.iter().filter_map(|need| tight(&planner, need));
        let warnings =
            tight.chain(starts_above_zero(setup, &placement)).chain(idle(&placement, total_num_envs)).collect();
        Self {
            allocation: lines.collect(),
            distribution: total_num_envs.map(|total| placement.distribution(total)).unwrap_or_default(),
            is_placed: setup.components.is_some(),
            total_num_envs,
            resources,
            memory,
            warnings,
            placement,
        }
    }

    /// What is said on stderr before the start.
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
        notes.extend(self.warnings.iter().map(|warning| Note::warning(format!("warning: {warning}"))));
        notes
    }
}

fn shortened(lines: &[String]) -> Vec<Note> {
    let mut shown: Vec<_> = lines.iter().take(LINES).cloned().map(Note::info).collect();
    if lines.len() > LINES {
        shown.push(Note::info(format!("… and {} more, see --dry-run", lines.len() - LINES)));
    }
    shown
}

fn tight(planner: &Planner<'_>, need: &Need) -> Option<String> {
    let budget = planner.budget(need.gpu);
    let fit = need.fit(budget);
    (fit.is_too_much() || fit == Fit::Tight).then(|| {
        format!(
            "GPU {} is tight, {}; fewer environments, GPUs of their own for env and rollout, or \
             use_high_res_cameras: False help, and `rrun fit` says how many fit",
            need.gpu,
            need.text(budget)
        )
    })
}

/// Isaac Sim can hang where its first GPU is not GPU 0 (RLinf's documentation of placement).
fn starts_above_zero(setup: &Setup, placement: &Placement) -> Option<String> {
    let is_isaac =
        |name: &str| ["isaac", "behavior", "omnigibson"].iter().any(|part| name.to_lowercase().contains(part));
    let name = setup.file.jobs.iter().map(|job| job.environment.as_str()).find(|name| is_isaac(name))?;
    let first = placement.env.iter().map(jobs::placement::Process::gpu).min()?;
    (first > 0).then(|| {
        format!("`{name}` may hang: environment workers of Isaac Sim should begin at GPU 0, these do at {first}")
    })
}

/// A worker with more GPUs than environments, or a policy with more than one.
fn idle(placement: &Placement, total: Option<usize>) -> Option<String> {
    let process = placement.rollout.iter().position(|process| process.gpus.len() > 1);
    let policy = process.map(|rank| {
        let process = &placement.rollout[rank];
        format!("a policy uses one GPU: of the {} of rank {rank} it is GPU {}", process.gpus.len(), process.gpu())
    });
    let each = total.map(|total| total / placement.env.len().max(1));
    let worker = placement.env.iter().position(|process| each.is_some_and(|each| process.gpus.len() > each));
    policy.or(worker.map(|worker| format!("environment worker {worker} has more GPUs than environments")))
}

#[cfg(test)]
mod tests;
