//! SLURM: what the command line leaves out is inferred from the variables of `srun` and `sbatch`.
//!
//! ```text
//! variables ─► place ─► infer ─► options that were not given: --nnodes --node-rank --master-addr --master-port
//!              (where)  (what)                                --nproc-per-node --rdzv-id
//! ```
//! A command line with a rendezvous option means what it means under torchrun, and nothing is inferred.
//!
//! With one task a node each launcher starts the ranks of its node. With more tasks than nodes each task is a rank: its
//! launcher meets the others as a node of one rank, so that store, failures and the end of the launch are as ever, and
//! [`Task`] puts the rank where it is: `LOCAL_RANK`, `LOCAL_WORLD_SIZE`, `GROUP_RANK`.

pub mod counts;
pub mod error;
pub mod gpus;
pub mod hostlist;
pub mod infer;
pub mod place;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cli::{Cli, Environment};
use crate::node::Node;
use crate::plan::{Plan, Sender};
use crate::say::Note;
pub use crate::slurm::error::SlurmError;
use crate::slurm::gpus::Gpus;
pub use crate::slurm::infer::{Inference, Task};
use crate::slurm::place::{Place, Step};

/// Options that say who takes part and where they meet.
const MEETING: [&str; 7] =
    ["nnodes", "node-rank", "standalone", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint"];

/// Between SIGTERM and SIGKILL. SLURM's own SIGKILL comes 30 s after its SIGTERM (`KillWait`); three seconds of these
/// are for the report.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(27);

/// A command line, completed.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The options as given or inferred.
    pub cli: Cli,
    place: Option<Place>,
    task: Option<Task>,
    notes: Vec<Note>,
}

impl Slurm {
    /// Reads SLURM's variables unless `--slurm off`.
    ///
    /// # Errors
    /// Variables that contradict each other, a step whose tasks cannot be one launch.
    pub fn new(cli: &Cli, env: &Environment) -> Result<Slurm, SlurmError> {
        let unchanged = |place| Slurm { cli: cli.clone(), place, task: None, notes: Vec::new() };
        if cli.slurm == "off" {
            return Ok(unchanged(None));
        }
        if MEETING.iter().any(|option| cli.is_given(option)) {
            let place = Place::read(env).ok();
            let notes = place.iter().filter_map(|place| crowded(place, cli)).map(Note::warning).collect();
            return Ok(Slurm { notes, ..unchanged(place) });
        }
        let place = Place::read(env)?;
        let nproc = cli.is_given("nproc-per-node").then_some(cli.nproc_per_node.as_str());
        let inference = Inference::new(&place, Gpus::read(env), nproc)?;
        let task = inference.task;
        let cli = completed(cli, &inference);
        Ok(Slurm { cli, place: Some(place), task, notes: inference.notes })
    }

    /// Where this launcher's only rank stands, when SLURM has started the ranks as tasks.
    pub fn task(&self) -> Option<Task> {
        self.task
    }

    /// Puts into the plan what is no option: the place of a rank that is a task, how SLURM's signals are meant, how
    /// long it waits, and what is to be said.
    pub fn complete(self, plan: &mut Plan, env: &Environment, node: &Node) {
        let (task, rank) = (self.task, self.cli.node_rank);
        if let (Some(task), Some(only)) = (task, plan.ranks.first_mut()) {
            only.env.extend(of_task(&task, rank, env));
        }
        plan.signals.sender = match &self.place {
            Some(Place::Step(_)) => Sender::SlurmToStep,
            Some(Place::Batch { .. }) => Sender::SlurmToScript,
            Some(Place::Outside | Place::Shell(_)) | None => Sender::Anyone,
        };
        let is_default = self.cli.shutdown_timeout.is_none() && !env.has("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
        if is_default && plan.signals.sender != Sender::Anyone {
            plan.shutdown_timeout = SHUTDOWN_TIMEOUT;
        }
        let bound = matches!(self.place, Some(Place::Step(_))).then(|| bound(node.cpus, plan.ranks.len())).flatten();
        plan.notes.splice(0..0, self.notes.into_iter().chain(bound.map(Note::warning)));
    }
}

fn completed(cli: &Cli, inference: &Inference) -> Cli {
    let mut cli = cli.clone();
    if let Some(meeting) = &inference.meeting {
        cli.nnodes = meeting.nnodes.to_string();
        cli.node_rank = i64::try_from(meeting.node_rank).unwrap_or(i64::MAX);
        cli.master_addr = Some(meeting.master_addr.clone());
        cli.master_port = Some(meeting.master_port.into());
    }
    if let Some(nproc) = inference.nproc {
        cli.nproc_per_node = nproc.to_string();
    }
    if let Some(run_id) = inference.run_id.as_ref().filter(|_| !cli.is_given("rdzv-id")) {
        cli.rdzv_id = run_id.clone();
    }
    // The one GPU that such a task sees is device 0 already.
    cli.virtual_local_rank &= !inference.task.is_some_and(|task| task.has_own_devices);
    cli
}

/// The variables of a rank that is the task `rank`.
fn of_task(task: &Task, rank: i64, env: &Environment) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("RANK", rank.to_string());
    set("ROLE_RANK", rank.to_string());
    set("LOCAL_WORLD_SIZE", task.local_world_size.to_string());
    set("GROUP_RANK", task.group_rank.to_string());
    set("GROUP_WORLD_SIZE", task.group_world_size.to_string());
    if task.has_own_devices {
        set("LOCAL_RANK", "0".to_owned());
    }
    // Torchrun's rule, one thread each where several ranks share a node, or what the task was given.
    if task.local_world_size > 1 && !env.has("OMP_NUM_THREADS") {
        let cpus = env.non_empty("SLURM_CPUS_PER_TASK").map(|cpus| cpus.to_string_lossy().into_owned());
        set("OMP_NUM_THREADS", cpus.filter(|cpus| cpus.parse::<u32>().is_ok()).unwrap_or_else(|| "1".to_owned()));
    }
    variables
}

/// With rendezvous options, several launchers on a node are most often a slip: two of one node are enough to form a
/// launch of two nodes, and the others wait for ever.
fn crowded(place: &Place, cli: &Cli) -> Option<String> {
    let Place::Step(Step { tasks_here, num_tasks, .. }) = place else { return None };
    let is_meant = cli.standalone || cli.nnodes == num_tasks.to_string();
    (*tasks_here > 1 && !is_meant).then(|| {
        format!("SLURM runs {tasks_here} tasks on this node, each of them a launcher: --ntasks-per-node=1 is usual")
    })
}

/// Since SLURM 22.05 a step does not take `--cpus-per-task` over from its job.
fn bound(cpus: usize, ranks: usize) -> Option<String> {
    let what = if cpus == 1 { "1 CPU".to_owned() } else { format!("{cpus} CPUs") };
    (cpus > 0 && cpus < ranks).then(|| {
        format!(
            "the {ranks} ranks of this node share {what}, to which srun has bound this task: srun --cpus-per-task=N \
             (or SRUN_CPUS_PER_TASK) gives it more, --cpu-bind=none all"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests;
