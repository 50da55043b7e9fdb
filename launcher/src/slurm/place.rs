//! Determines where in SLURM this process runs, by its variables. Pure.
//!
//! ```text
//! sbatch ──► batch script        ENVIRONMENT=BATCH, SLURM_PROCID=0 beside the job's SLURM_NTASKS
//!              └─ srun ──► task  the same and SLURM_STEP_*, which describe the step;
//!                                SLURM_JOB_* still describe the job
//! salloc ──► shell               SLURM_JOB_ID only, and perhaps on another machine
//! ```
//! A step may use only part of its job's nodes, so the node list and count are those of the step.
//! HOSTNAME and SLURM_JOB_GPUS describe the batch node on every node and are not used.

use std::str::FromStr;

use crate::cli::Environment;
use crate::slurm::error::SlurmError;
use crate::slurm::{counts, hostlist};

/// The place of this process in SLURM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SlurmPlace {
    /// Not in a job.
    Outside,
    /// In the shell that `salloc` starts.
    Shell(SlurmJob),
    /// In the batch script, or started by it without `srun`.
    Batch {
        /// The job.
        job: SlurmJob,
        /// Number of nodes of the job; this is the first.
        nnodes: usize,
        /// Number of tasks requested for this node, if any were.
        tasks: Option<usize>,
    },
    /// In a task of a step.
    Step(SlurmStep),
}

/// The identity of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmJob {
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
pub struct SlurmStep {
    /// The job.
    pub job: SlurmJob,
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
    /// The first of `--resv-ports`, the same on all nodes.
    pub reserved_port: Option<u16>,
    /// `--distribution=arbitrary`: task 0 may be on any node.
    pub is_arbitrary: bool,
}

impl SlurmStep {
    /// Returns the number of tasks on this node.
    pub fn tasks_here(&self) -> usize {
        self.tasks_per_node.get(self.node_id).copied().unwrap_or(1)
    }
}

impl SlurmPlace {
    /// Reads the variables.
    ///
    /// # Errors
    /// Returns an error if the variables of a step are incomplete or contradict each other.
    pub fn read(env: &Environment) -> Result<SlurmPlace, SlurmError> {
        let Some(job) = job(env)? else {
            return Ok(SlurmPlace::Outside);
        };
        if env.has("SLURM_STEP_ID") && env.has("SLURM_STEP_NUM_NODES") && !is_of_another_step(env) {
            return step(env, job).map(SlurmPlace::Step);
        }
        if text(env, "ENVIRONMENT").as_deref() == Some("BATCH") {
            let nnodes = optional(env, "SLURM_NNODES")?.unwrap_or(1);
            return Ok(SlurmPlace::Batch {
                job,
                nnodes,
                tasks: tasks_of_batch(env),
            });
        }
        Ok(SlurmPlace::Shell(job))
    }
}

fn job(env: &Environment) -> Result<Option<SlurmJob>, SlurmError> {
    let Some(id) = optional(env, "SLURM_JOB_ID")? else {
        return Ok(None);
    };
    let element = text(env, "SLURM_ARRAY_JOB_ID").zip(text(env, "SLURM_ARRAY_TASK_ID"));
    let element = element.map(|(array, task)| format!("{array}_{task}"));
    Ok(Some(SlurmJob {
        id,
        element,
        restarts: optional(env, "SLURM_RESTART_COUNT")?.unwrap_or(0),
    }))
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
    text(env, "ENVIRONMENT").as_deref() == Some("BATCH") && pairs.into_iter().any(differ)
}

/// Returns the number of tasks on the batch node. Without `SLURM_NTASKS` the list only repeats the
/// number of CPUs (`--exclusive` without `-n`).
fn tasks_of_batch(env: &Environment) -> Option<usize> {
    text(env, "SLURM_NTASKS")?;
    counts::expand(&text(env, "SLURM_TASKS_PER_NODE")?)?
        .first()
        .copied()
}

fn step(env: &Environment, job: SlurmJob) -> Result<SlurmStep, SlurmError> {
    let nnodes = required(env, "SLURM_STEP_NUM_NODES")?;
    let node_id: usize = required(env, "SLURM_NODEID")?;
    let name = "SLURM_STEP_NODELIST";
    let nodes = hostlist::expand(&text(env, name).ok_or(SlurmError::Missing(name))?);
    let nodes = nodes.map_err(|err| SlurmError::Nodes { name, err })?;
    let length = |what, found| {
        if found == nnodes {
            Ok(())
        } else {
            Err(SlurmError::Length {
                what,
                found,
                nnodes,
            })
        }
    };
    length(name, nodes.len())?;
    let name = "SLURM_STEP_TASKS_PER_NODE";
    let found = text(env, name).ok_or(SlurmError::Missing(name))?;
    let tasks = counts::expand(&found);
    let tasks = tasks.ok_or(SlurmError::Value {
        name,
        found,
        wanted: "a list of counts",
    })?;
    length(name, tasks.len())?;
    if node_id >= nnodes {
        return Err(SlurmError::Value {
            name: "SLURM_NODEID",
            found: node_id.to_string(),
            wanted: "the index of a node of this step",
        });
    }
    Ok(SlurmStep {
        job,
        id: required(env, "SLURM_STEP_ID")?,
        nodes,
        node_id,
        proc_id: required(env, "SLURM_PROCID")?,
        local_id: required(env, "SLURM_LOCALID")?,
        num_tasks: required(env, "SLURM_STEP_NUM_TASKS")?,
        tasks_per_node: tasks,
        reserved_port: text(env, "SLURM_STEP_RESV_PORTS").and_then(|ports| first_port(&ports)),
        is_arbitrary: text(env, "SLURM_DISTRIBUTION")
            .is_some_and(|how| how.starts_with("arbitrary")),
    })
}

/// Returns the first port of a list such as `12001-12002,12007`.
fn first_port(ports: &str) -> Option<u16> {
    ports
        .split([',', '-'])
        .next()?
        .trim()
        .parse()
        .ok()
        .filter(|&port| port > 0)
}

fn text(env: &Environment, name: &str) -> Option<String> {
    env.non_empty(name)
        .map(|value| value.to_string_lossy().into_owned())
}

fn optional<T: FromStr>(env: &Environment, name: &'static str) -> Result<Option<T>, SlurmError> {
    let Some(found) = text(env, name) else {
        return Ok(None);
    };
    found.parse().map(Some).map_err(|_| SlurmError::Value {
        name,
        found,
        wanted: "a whole number",
    })
}

fn required<T: FromStr>(env: &Environment, name: &'static str) -> Result<T, SlurmError> {
    optional(env, name)?.ok_or(SlurmError::Missing(name))
}
