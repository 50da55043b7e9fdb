//! Where in SLURM this process runs, by its variables, and what follows for a launch. Pure.
//!
//! ```text
//! sbatch ──► batch script        ENVIRONMENT=BATCH, SLURM_PROCID=0 beside the job's SLURM_NTASKS
//!              └─ srun ──► task  the same and SLURM_STEP_*, which describe the step;
//!                                SLURM_JOB_* still describe the job
//! salloc ──► shell               SLURM_JOB_ID only, and perhaps on another machine
//! ```
//! A step may use only part of its job's nodes, so the node list and count are those of the step.
//! HOSTNAME and SLURM_JOB_GPUS describe the batch node on every node and are not used.
//!
//! With one task per node, each launcher starts the ranks of its node. With more tasks than nodes,
//! each task is a rank: its launcher joins as a node with one rank, so that the store, failures and
//! the end of the launch work as usual, and [`Step`] has the rank's real place: `LOCAL_RANK`,
//! `LOCAL_WORLD_SIZE`, `GROUP_RANK`.

use std::collections::BTreeMap;
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use jobs::count::counted;
use jobs::numbers::Numbers;

use crate::cli::{Cli, Environment};
use crate::cluster::hostlist::{self, counts};
use crate::cluster::{Inferred, Meeting, node_note, number, unfit};
use crate::plan::Sender;
use crate::say::Note;

/// The lowest port used. It is above the ports of system services, and the range ends below 32768,
/// where the kernel's range for outgoing connections begins (`net.ipv4.ip_local_port_range`), so
/// that no connection can occupy the port.
const FIRST_PORT: u64 = 10_000;

/// Number of ports in the range.
const PORTS: u64 = 22_000;

/// Number of ports per job, one per step: jobs with neighbouring ids often run at the same time,
/// and so do a job's steps.
const PORTS_A_JOB: u64 = 8;

/// The place of this process in SLURM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the shell that `salloc` starts.
    Shell(Job),
    /// In the batch script, or started by it without `srun`.
    Batch {
        /// The job.
        job: Job,
        /// Number of nodes of the job; this is the first.
        nnodes: usize,
        /// Number of tasks requested for this node, if any were.
        tasks: Option<usize>,
    },
    /// In a task of a step.
    Step(Step),
}

/// The identity of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Value of `SLURM_JOB_ID`. Every element of an array has its own; the parts of a heterogeneous
    /// job share the leader's.
    pub id: u64,
    /// Values of `SLURM_ARRAY_JOB_ID` and `SLURM_ARRAY_TASK_ID`, as `12_3`.
    pub element: Option<String>,
    /// Number of requeues, `SLURM_RESTART_COUNT`.
    pub restarts: u32,
}

/// One task of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The job.
    pub job: Job,
    /// Value of `SLURM_STEP_ID`.
    pub id: u64,
    /// The step's nodes in order; `SLURM_NODEID` is an index into this list.
    pub nodes: Vec<String>,
    /// Index of this node, `SLURM_NODEID`.
    pub node_id: usize,
    /// Index of the task in the step, `SLURM_PROCID`.
    pub proc_id: usize,
    /// Index of the task on this node, `SLURM_LOCALID`.
    pub local_id: usize,
    /// Number of tasks of the step, `SLURM_STEP_NUM_TASKS`.
    pub num_tasks: usize,
    /// Number of tasks of the step on each of its nodes.
    pub tasks_per_node: Vec<usize>,
    /// Number of tasks on this node.
    pub tasks_here: usize,
    /// The first of `--resv-ports`, the same on all nodes.
    pub reserved_port: Option<u16>,
    /// `--distribution=arbitrary`: task 0 may be on any node.
    pub is_arbitrary: bool,
    /// Whether the task sees fewer GPUs than there are tasks on its node (`--gpus-per-task`). Then
    /// those GPUs are its own, and the first of them is device 0 whatever the local rank.
    pub has_own_devices: bool,
}

impl Place {
    /// Reads the variables; `None` outside jobs.
    ///
    /// # Errors
    /// Returns an error if the variables of a step are incomplete or contradict each other.
    pub fn read(env: &Environment) -> anyhow::Result<Option<Place>> {
        let Some(id) = optional(env, "SLURM_JOB_ID")? else {
            return Ok(None);
        };
        let element = env.text("SLURM_ARRAY_JOB_ID");
        let element = element.zip(env.text("SLURM_ARRAY_TASK_ID"));
        let job = Job {
            id,
            element: element.map(|(array, task)| format!("{array}_{task}")),
            restarts: optional(env, "SLURM_RESTART_COUNT")?.unwrap_or(0),
        };
        if env.has("SLURM_STEP_ID") && env.has("SLURM_STEP_NUM_NODES") && !is_of_another_step(env) {
            return Step::read(env, job).map(Place::Step).map(Some);
        }
        if !is_batch(env) {
            return Ok(Some(Place::Shell(job)));
        }
        let nnodes = optional(env, "SLURM_NNODES")?.unwrap_or(1);
        let tasks = tasks_of_batch(env);
        Ok(Some(Place::Batch { job, nnodes, tasks }))
    }

    /// Infers the options. `nproc` is `--nproc-per-node` if it was given.
    ///
    /// # Errors
    /// Returns an error for a step whose launchers could not find each other, or whose tasks would
    /// each start several ranks.
    pub fn infer(&self, env: &Environment, nproc: Option<&str>) -> anyhow::Result<Inferred> {
        let gpus = gpus(env);
        let inferred = match self {
            Place::Shell(job) => Inferred::with_warning(format!(
                "SLURM {}: this launch is on this machine alone; `srun rrun …` is on the job's nodes",
                job.name()
            )),
            Place::Batch { job, nnodes, tasks } => {
                let by_tasks = tasks.map(|tasks| (tasks, "tasks per node"));
                batch(job, *nnodes, gpus.or(by_tasks).filter(|_| nproc.is_none()))
            }
            Place::Step(step) if step.num_tasks == step.nodes.len() => step.node(gpus, nproc),
            Place::Step(step) => step.task(nproc)?,
        };
        Ok(Inferred {
            sender: self.sender(),
            ..inferred
        })
    }

    /// Returns what counts beside a rendezvous option, with a warning if several launchers run on
    /// one node. That is usually a mistake: two launchers of one node are enough to form a launch of
    /// two nodes, and the others wait forever.
    pub fn beside(&self, cli: &Cli) -> Inferred {
        let mut notes = Vec::new();
        if let Place::Step(step) = self
            && step.tasks_here > 1
            && !(cli.standalone || cli.nnodes == step.num_tasks.to_string())
        {
            notes.push(Note::warning(format!(
                "SLURM runs {} tasks on this node, each of them a launcher: --ntasks-per-node=1 is \
                 usual",
                step.tasks_here
            )));
        }
        Inferred {
            sender: self.sender(),
            notes,
            ..Inferred::default()
        }
    }

    fn sender(&self) -> Sender {
        match self {
            Place::Step(_) => Sender::SlurmToStep,
            Place::Batch { .. } => Sender::SlurmToScript,
            Place::Shell(_) => Sender::Anyone,
        }
    }
}

/// Infers the options in a batch script; `ranks` are those of the GPUs or tasks, and their source.
fn batch(job: &Job, nnodes: usize, ranks: Option<(usize, &str)>) -> Inferred {
    let (name, mut notes) = (job.name(), Vec::new());
    if let Some((count, source)) = ranks.filter(|(count, _)| *count > 1) {
        notes.push(Note::info(format!(
            "SLURM {name}: {count} ranks here ({source})"
        )));
    }
    if nnodes > 1 {
        notes.push(Note::warning(format!(
            "SLURM {name} has {nnodes} nodes, this launch is on the first alone; `srun \
             --ntasks-per-node=1 rrun …` uses all"
        )));
    }
    Inferred {
        nproc: ranks.map(|(count, _)| count),
        notes,
        ..Inferred::default()
    }
}

impl Job {
    /// Returns the name of a job: `job 14`, `job 14 (array element 12_3, requeue 1)`.
    fn name(&self) -> String {
        let element = self.element.iter();
        let element = element.map(|element| format!("array element {element}"));
        let requeued = (self.restarts > 0).then(|| format!("requeue {}", self.restarts));
        let facts: Vec<String> = element.chain(requeued).collect();
        match facts.is_empty() {
            true => format!("job {}", self.id),
            false => format!("job {} ({})", self.id, facts.join(", ")),
        }
    }
}

impl Step {
    fn read(env: &Environment, job: Job) -> anyhow::Result<Step> {
        let nnodes: usize = required(env, "SLURM_STEP_NUM_NODES")?;
        let node_id: usize = required(env, "SLURM_NODEID")?;
        let all = |name: &str, found: usize| {
            ensure!(
                found == nnodes,
                "the variable {name} has {found} entries for {nnodes} nodes"
            );
            Ok(())
        };
        let name = "SLURM_STEP_NODELIST";
        let nodes = hostlist::expand(&required::<String>(env, name)?);
        let nodes = nodes.with_context(|| format!("the variable {name}"))?;
        all(name, nodes.len())?;
        let name = "SLURM_STEP_TASKS_PER_NODE";
        let found: String = required(env, name)?;
        let tasks = counts(&found).ok_or_else(|| unfit(name, &found, "a list of counts"))?;
        all(name, tasks.len())?;
        let tasks_here = tasks.get(node_id).copied().ok_or_else(|| {
            let wanted = "the index of a node of this step";
            unfit("SLURM_NODEID", &node_id.to_string(), wanted)
        })?;
        let ports = env.text("SLURM_STEP_RESV_PORTS");
        let distribution = env.text("SLURM_DISTRIBUTION").unwrap_or_default();
        Ok(Step {
            job,
            id: required(env, "SLURM_STEP_ID")?,
            nodes,
            node_id,
            proc_id: required(env, "SLURM_PROCID")?,
            local_id: required(env, "SLURM_LOCALID")?,
            num_tasks: required(env, "SLURM_STEP_NUM_TASKS")?,
            tasks_per_node: tasks,
            tasks_here,
            reserved_port: ports.and_then(|ports| first_port(&ports)),
            is_arbitrary: distribution.starts_with("arbitrary"),
            has_own_devices: gpus(env).is_some_and(|(count, _)| count < tasks_here),
        })
    }

    /// One task per node: the launcher starts the ranks of its node.
    fn node(&self, gpus: Option<(usize, &str)>, nproc: Option<&str>) -> Inferred {
        let ranks = gpus.filter(|_| nproc.is_none());
        let meeting = match self.nodes.len() {
            1 => None,
            nnodes => Some(self.meeting(nnodes, self.node_id)),
        };
        Inferred {
            run_id: Some(self.run_id()),
            nproc: ranks.map(|(count, _)| count),
            notes: vec![node_note(&self.label(), nproc, ranks, meeting.as_ref())],
            meeting,
            ..Inferred::default()
        }
    }

    /// More tasks than nodes: each task is a rank, and its launcher joins as a node with one rank.
    fn task(&self, nproc: Option<&str>) -> anyhow::Result<Inferred> {
        if let Some(nproc) = nproc.filter(|nproc| nproc.trim() != "1") {
            bail!(
                "SLURM runs {} tasks on this node and each would launch --nproc-per-node {nproc}: \
                 use srun --ntasks-per-node=1, or leave --nproc-per-node out and each task is a \
                 rank (--standalone or --slurm off for launches of their own)",
                self.tasks_here
            );
        }
        ensure!(
            !self.is_arbitrary,
            "srun --distribution=arbitrary may put task 0 on any node: give --master-addr and \
             --master-port"
        );
        let meeting = self.meeting(self.num_tasks, self.proc_id);
        let devices = match self.has_own_devices {
            true => ", each with GPUs of its own (LOCAL_RANK=0)",
            false => "",
        };
        let note = || {
            Note::info(format!(
                "{}: {} tasks on {}, one rank each{devices}, meeting at {}:{}",
                self.label(),
                self.num_tasks,
                counted(self.nodes.len(), "node"),
                meeting.addr,
                meeting.port
            ))
        };
        Ok(Inferred {
            // One line for the step, not one per rank.
            notes: (self.proc_id == 0).then(note).into_iter().collect(),
            meeting: Some(meeting),
            run_id: Some(self.run_id()),
            nproc: Some(1),
            task: Some(self.clone()),
            ..Inferred::default()
        })
    }

    /// Returns the meeting point on the first node, where task 0 is with every distribution but an
    /// arbitrary one.
    fn meeting(&self, nnodes: usize, node_rank: usize) -> Meeting {
        let common_port = || common_port(self.job.id, self.id);
        Meeting {
            nnodes,
            node_rank,
            addr: self.nodes.first().cloned().unwrap_or_default(),
            port: self.reserved_port.unwrap_or_else(common_port),
        }
    }

    /// Returns job and step, for example `14.0`; after a requeue `14.0.r1`.
    fn run_id(&self) -> String {
        match self.job.restarts {
            0 => format!("{}.{}", self.job.id, self.id),
            restarts => format!("{}.{}.r{restarts}", self.job.id, self.id),
        }
    }

    fn label(&self) -> String {
        format!("SLURM {} step {}", self.job.name(), self.id)
    }
}

/// Returns the port, which is the same on all nodes without any communication.
fn common_port(job: u64, step: u64) -> u16 {
    let offset = (job % PORTS * PORTS_A_JOB + step % PORTS_A_JOB) % PORTS;
    u16::try_from(FIRST_PORT + offset).expect("the range ends below 32768")
}

/// Returns the variables of a rank that is a task.
pub fn variables(task: &Step, env: &Environment) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    let mut set = |name: &str, value: String| drop(variables.insert(name.to_owned(), value));
    set("RANK", task.proc_id.to_string());
    set("ROLE_RANK", task.proc_id.to_string());
    set("LOCAL_WORLD_SIZE", task.tasks_here.to_string());
    set("GROUP_RANK", task.node_id.to_string());
    set("GROUP_WORLD_SIZE", task.tasks_per_node.len().to_string());
    if task.has_own_devices {
        set("LOCAL_RANK", "0".to_owned());
    }
    // Torchrun's rule, one thread per rank if several ranks share a node, or the CPUs that the task
    // was given.
    if task.tasks_here > 1 && !env.has("OMP_NUM_THREADS") {
        let cpus = env.text("SLURM_CPUS_PER_TASK");
        let cpus = cpus.filter(|cpus| cpus.parse::<u32>().is_ok());
        set("OMP_NUM_THREADS", cpus.unwrap_or_else(|| "1".to_owned()));
    }
    variables
}

/// Returns a note about `--cpus-per-task`, which a step does not inherit from its job since SLURM
/// 22.05.
pub fn bound(cpus: usize, ranks: usize) -> Option<Note> {
    let what = counted(cpus, "CPU");
    (cpus > 0 && cpus < ranks).then(|| {
        Note::warning(format!(
            "the {ranks} ranks of this node share {what}, to which srun has bound this task: srun \
             --cpus-per-task=N (or SRUN_CPUS_PER_TASK) gives it more, --cpu-bind=none all"
        ))
    })
}

fn is_batch(env: &Environment) -> bool {
    env.get("ENVIRONMENT").is_some_and(|kind| kind == "BATCH")
}

/// Returns whether the step variables belong to another step: a batch script that was submitted
/// from within a step inherits that step's variables. In a step of its own, `srun` sets the plain
/// variables to the same values.
fn is_of_another_step(env: &Environment) -> bool {
    let pairs = [
        ("SLURM_NNODES", "SLURM_STEP_NUM_NODES"),
        ("SLURM_NTASKS", "SLURM_STEP_NUM_TASKS"),
        ("SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"),
    ];
    let differ = |(plain, of_step)| env.has(plain) && env.get(plain) != env.get(of_step);
    is_batch(env) && pairs.into_iter().any(differ)
}

/// Returns the number of tasks on the batch node. Without `SLURM_NTASKS` the list only repeats the
/// number of CPUs (`--exclusive` without `-n`).
fn tasks_of_batch(env: &Environment) -> Option<usize> {
    env.text("SLURM_NTASKS")?;
    let tasks = counts(&env.text("SLURM_TASKS_PER_NODE")?)?;
    tasks.first().copied()
}

/// Returns the GPUs of this task, or of the batch script, and the variable that tells them.
/// `SLURM_JOB_GPUS` is not used, because it describes the batch node on every node.
/// `SLURM_GPUS_ON_NODE` comes last, because with `--gpus-per-task` it also counts the GPUs of the
/// other tasks.
fn gpus(env: &Environment) -> Option<(usize, &'static str)> {
    let counted_in = |name: &'static str, count: fn(&str) -> usize| {
        let value = env.get(name)?.to_string_lossy();
        Some((count(&value), name))
    };
    let number = |text: &str| text.trim().parse().unwrap_or(0);
    let indices = |text: &str| Numbers::from_str(text).map_or(0, |found| found.count() as usize);
    let has_some = |(count, _): &(usize, _)| *count > 0;
    let found = counted_in("CUDA_VISIBLE_DEVICES", devices)
        .or_else(|| counted_in("SLURM_STEP_GPUS", indices).filter(has_some))
        .or_else(|| counted_in("SLURM_GPUS_ON_NODE", number));
    found.filter(has_some)
}

/// Counts the entries before the first invalid one; older versions of SLURM write `NoDevFiles` if
/// there is no GPU.
fn devices(list: &str) -> usize {
    let is_device = |item: &&str| {
        item.starts_with("GPU-") || item.starts_with("MIG-") || item.parse::<u32>().is_ok()
    };
    let items = list.split(',').map(str::trim);
    items.take_while(is_device).count()
}

/// Returns the first port of a list such as `12001-12002,12007`.
fn first_port(ports: &str) -> Option<u16> {
    let first = ports.split([',', '-']).next()?.trim().parse().ok();
    first.filter(|&port| port > 0)
}

fn optional<T: FromStr>(env: &Environment, name: &str) -> anyhow::Result<Option<T>> {
    number(env, name, "a whole number")
}

fn required<T: FromStr>(env: &Environment, name: &str) -> anyhow::Result<T> {
    optional(env, name)?.with_context(|| format!("the variable {name} is not set"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::environment;

    #[test]
    fn ports_of_steps_and_neighbouring_jobs_differ() {
        let ports: std::collections::BTreeSet<u16> = (1000..1100)
            .flat_map(|job| (0..8).map(move |step| common_port(job, step)))
            .collect();
        assert_eq!(ports.len(), 800);
        assert!(common_port(u64::MAX, u64::MAX) < 32_768 && common_port(0, 0) == 10_000);
    }

    #[test]
    fn what_cuda_shows_comes_first_and_hidden_gpus_do_not_count() {
        let (cuda, step) = ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS");
        let node = "SLURM_GPUS_ON_NODE";
        for (variables, wanted) in [
            (
                &[(cuda, "1"), (step, "0,1"), (node, "2")][..],
                Some((1, cuda)),
            ),
            (&[(step, "0,2-3"), (node, "2")], Some((3, step))),
            (&[(node, "4")], Some((4, node))),
            (&[(step, "0,1,x"), (node, "2")], Some((2, node))),
            (&[(step, ""), (node, "2")], Some((2, node))),
            (&[(step, "0,1,x")], None),
            (&[(cuda, ""), (node, "2")], None),
            (&[(cuda, "NoDevFiles")], None),
            (&[("SLURM_JOB_GPUS", "0,1")], None),
            // Devices have numbers or UUIDs.
            (&[(cuda, "0, 3")], Some((2, cuda))),
            (&[(cuda, "GPU-8f,GPU-1")], Some((2, cuda))),
            (&[(cuda, "MIG-5")], Some((1, cuda))),
            (&[(cuda, "0,-1,2")], Some((1, cuda))),
        ] {
            let found = gpus(&environment(variables.iter().copied()));
            assert_eq!(found, wanted, "{variables:?}");
        }
    }
}
