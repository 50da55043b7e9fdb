//! SLURM integration: infers options that the command line leaves out from the variables of `srun`
//! and `sbatch`.
//!
//! ```text
//! variables ─► place ─► infer ─► options that were not given: --nnodes --node-rank --rdzv-id
//!              (where)  (what)            --master-addr --master-port --nproc-per-node
//! ```
//! A command line with a rendezvous option means the same as under torchrun, and nothing is
//! inferred.
//!
//! With one task per node, each launcher starts the ranks of its node. With more tasks than nodes,
//! each task is a rank: its launcher joins as a node with one rank, so that the store, failures and
//! the end of the launch work as usual, and [`SlurmTask`] sets the rank's real place: `LOCAL_RANK`,
//! `LOCAL_WORLD_SIZE`, `GROUP_RANK`.

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
use crate::plan::{LaunchPlan, Sender};
use crate::say::note::Note;
pub use crate::slurm::error::SlurmError;
use crate::slurm::gpus::SlurmGpus;
pub use crate::slurm::infer::{SlurmInference, SlurmTask};
use crate::slurm::place::SlurmPlace;

/// Time between SIGTERM and SIGKILL. SLURM's own SIGKILL comes 30 s after its SIGTERM (`KillWait`);
/// the remaining three seconds are for the report.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(27);

/// A command line with the inferred options.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The options, given or inferred.
    pub cli: Cli,
    place: Option<SlurmPlace>,
    task: Option<SlurmTask>,
    notes: Vec<Note>,
}

impl Slurm {
    /// Infers options from SLURM's variables, unless `--slurm off` is given.
    ///
    /// # Errors
    /// Returns an error if variables contradict each other, or if the tasks of the step cannot form
    /// one launch.
    pub fn new(cli: &Cli, env: &Environment) -> Result<Slurm, SlurmError> {
        let unchanged = |place| Slurm {
            cli: cli.clone(),
            place,
            task: None,
            notes: Vec::new(),
        };
        if cli.slurm == "off" {
            return Ok(unchanged(None));
        }
        if cli.has_rendezvous_option() {
            let place = SlurmPlace::read(env).ok();
            let notes = place
                .iter()
                .filter_map(|place| crowded(place, cli))
                .map(Note::warning)
                .collect();
            return Ok(Slurm {
                notes,
                ..unchanged(place)
            });
        }
        let place = SlurmPlace::read(env)?;
        let nproc = cli
            .is_given("nproc-per-node")
            .then_some(cli.nproc_per_node.as_str());
        let inference = SlurmInference::new(&place, SlurmGpus::read(env), nproc)?;
        let cli = completed(cli, &inference);
        Ok(Slurm {
            cli,
            place: Some(place),
            task: inference.task,
            notes: inference.notes,
        })
    }

    /// Returns whether this process is in a SLURM job whose variables count.
    pub fn is_in_job(&self) -> bool {
        !matches!(self.place, None | Some(SlurmPlace::Outside))
    }

    /// Returns the place of this launcher's only rank, if SLURM has started the ranks as tasks.
    pub fn task(&self) -> Option<&SlurmTask> {
        self.task.as_ref()
    }

    /// Adds to the plan what is not an option: the place of a rank that is a task, the meaning of
    /// SLURM's signals, the shutdown timeout, and notes.
    pub fn complete(self, plan: &mut LaunchPlan, env: &Environment, node: &Node) {
        let rank = self.cli.node_rank;
        if let (Some(task), Some(only)) = (&self.task, plan.ranks.first_mut()) {
            only.env.extend(of_task(task, rank, env));
        }
        plan.signals.sender = match &self.place {
            Some(SlurmPlace::Step(_)) => Sender::SlurmToStep,
            Some(SlurmPlace::Batch { .. }) => Sender::SlurmToScript,
            Some(SlurmPlace::Outside | SlurmPlace::Shell(_)) | None => Sender::Anyone,
        };
        let is_default =
            self.cli.shutdown_timeout.is_none() && !env.has("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
        if is_default && plan.signals.sender != Sender::Anyone {
            plan.shutdown_timeout = SHUTDOWN_TIMEOUT;
        }
        let bound = matches!(self.place, Some(SlurmPlace::Step(_)))
            .then(|| bound(node.cpus, plan.ranks.len()))
            .flatten();
        plan.notes
            .splice(0..0, self.notes.into_iter().chain(bound.map(Note::warning)));
    }
}

fn completed(cli: &Cli, inference: &SlurmInference) -> Cli {
    let (meeting, run_id) = (inference.meeting.as_ref(), inference.run_id.as_deref());
    let mut cli = cli.with_inferred(meeting, inference.nproc, run_id);
    // Such a task sees only one GPU, which is device 0 already.
    cli.virtual_local_rank &= !inference
        .task
        .as_ref()
        .is_some_and(|task| task.has_own_devices);
    cli
}

/// Returns the variables of a rank that is the task `rank`.
fn of_task(task: &SlurmTask, rank: i64, env: &Environment) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("RANK", rank.to_string());
    set("ROLE_RANK", rank.to_string());
    set("LOCAL_WORLD_SIZE", task.local_world_size().to_string());
    set("GROUP_RANK", task.group_rank.to_string());
    set("GROUP_WORLD_SIZE", task.group_world_size().to_string());
    if task.has_own_devices {
        set("LOCAL_RANK", "0".to_owned());
    }
    // Torchrun's rule, one thread per rank if several ranks share a node, or the CPUs that the task
    // was given.
    if task.local_world_size() > 1 && !env.has("OMP_NUM_THREADS") {
        let cpus = env
            .non_empty("SLURM_CPUS_PER_TASK")
            .map(|cpus| cpus.to_string_lossy().into_owned());
        set(
            "OMP_NUM_THREADS",
            cpus.filter(|cpus| cpus.parse::<u32>().is_ok())
                .unwrap_or_else(|| "1".to_owned()),
        );
    }
    variables
}

/// Returns a warning if several launchers run on one node with rendezvous options. That is usually
/// a mistake: two launchers of one node are enough to form a launch of two nodes, and the others
/// wait forever.
fn crowded(place: &SlurmPlace, cli: &Cli) -> Option<String> {
    let SlurmPlace::Step(step) = place else {
        return None;
    };
    let tasks_here = step.tasks_here();
    let is_meant = cli.standalone || cli.nnodes == step.num_tasks.to_string();
    (tasks_here > 1 && !is_meant).then(|| {
        format!("SLURM runs {tasks_here} tasks on this node, each of them a launcher: --ntasks-per-node=1 is usual")
    })
}

/// Returns a note about `--cpus-per-task`, which a step does not inherit from its job since SLURM
/// 22.05.
fn bound(cpus: usize, ranks: usize) -> Option<String> {
    let what = if cpus == 1 {
        "1 CPU".to_owned()
    } else {
        format!("{cpus} CPUs")
    };
    (cpus > 0 && cpus < ranks).then(|| {
        format!(
            "the {ranks} ranks of this node share {what}, to which srun has bound this task: srun --cpus-per-task=N \
             (or SRUN_CPUS_PER_TASK) gives it more, --cpu-bind=none all"
        )
    })
}

#[cfg(test)]
pub(crate) mod tests;
