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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm::tests::{BATCH, STEP};

    fn changed(base: &[(&str, &str)], changes: &[(&str, &str)]) -> Result<SlurmPlace, SlurmError> {
        let variables = base.iter().chain(changes);
        SlurmPlace::read(
            &variables.fold(Environment::default(), |env, (name, value)| {
                env.with(name, value)
            }),
        )
    }

    fn step(changes: &[(&str, &str)]) -> SlurmStep {
        match changed(&STEP, changes).expect("a step") {
            SlurmPlace::Step(step) => step,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_job_it_is_outside() {
        assert_eq!(
            SlurmPlace::read(&Environment::default()),
            Ok(SlurmPlace::Outside)
        );
    }

    #[test]
    fn a_task_knows_its_step_node_and_neighbours() {
        let step = step(&[]);
        assert_eq!(
            (
                step.nodes.join(" ").as_str(),
                step.node_id,
                step.tasks_here()
            ),
            ("node1 node2", 1, 2)
        );
        assert_eq!(
            (
                step.proc_id,
                step.local_id,
                step.num_tasks,
                step.id,
                step.job.id
            ),
            (3, 1, 4, 0, 1)
        );
    }

    #[test]
    fn a_step_on_a_part_of_the_job_has_its_own_nodes() {
        // srun -N1 -n1 -w node2 in a job of two nodes.
        let part = [
            ("SLURM_STEP_NODELIST", "node2"),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_STEP_NUM_TASKS", "1"),
        ];
        let own = [
            ("SLURM_STEP_TASKS_PER_NODE", "1"),
            ("SLURM_NODEID", "0"),
            ("SLURM_PROCID", "0"),
        ];
        let plain = [
            ("SLURM_NNODES", "1"),
            ("SLURM_NTASKS", "1"),
            ("SLURM_TASKS_PER_NODE", "1"),
        ];
        assert_eq!(
            step(&[part.as_slice(), &own, &plain].concat()).nodes,
            ["node2"]
        );
    }

    #[test]
    fn a_heterogeneous_job_is_described_as_a_whole() {
        // srun --het-group=0,1, one node with one task and two with three and one: seen with SLURM
        // 22.05.
        let changes = [
            ("SLURM_STEP_NODELIST", "node[1-3]"),
            ("SLURM_STEP_NUM_NODES", "3"),
            ("SLURM_STEP_NUM_TASKS", "5"),
            ("SLURM_STEP_TASKS_PER_NODE", "1,3,1"),
            ("SLURM_NNODES", "3"),
            ("SLURM_NTASKS", "5"),
            ("SLURM_TASKS_PER_NODE", "1,3,1"),
            ("SLURM_NODEID", "1"),
        ];
        let step = step(&changes);
        assert_eq!(
            (step.nodes.len(), step.tasks_here(), step.num_tasks),
            (3, 3, 5)
        );
    }

    #[test]
    fn the_batch_script_looks_like_rank_0_and_is_told_by_its_environment() {
        let job = SlurmJob {
            id: 1,
            element: None,
            restarts: 0,
        };
        assert_eq!(
            changed(&BATCH, &[]),
            Ok(SlurmPlace::Batch {
                job,
                nnodes: 2,
                tasks: Some(2)
            })
        );
    }

    #[test]
    fn a_batch_script_submitted_from_a_step_is_no_step() {
        // sbatch -N1 -n1 in a task of a step on two nodes: seen with SLURM 22.05.
        let own = [
            ("SLURM_NNODES", "1"),
            ("SLURM_NTASKS", "1"),
            ("SLURM_TASKS_PER_NODE", "1"),
        ];
        assert!(matches!(
            changed(&STEP, &own),
            Ok(SlurmPlace::Batch {
                nnodes: 1,
                tasks: Some(1),
                ..
            })
        ));
    }

    #[test]
    fn counts_of_cpus_are_no_tasks() {
        // --exclusive without -n: SLURM_TASKS_PER_NODE repeats the number of CPUs.
        let Ok(SlurmPlace::Batch { tasks, .. }) = changed(
            &BATCH,
            &[("SLURM_NTASKS", ""), ("SLURM_TASKS_PER_NODE", "8(x2)")],
        ) else {
            panic!("no batch script")
        };
        assert_eq!(tasks, None);
    }

    #[test]
    fn the_shell_of_salloc_has_a_job_and_no_step() {
        let place = changed(&[("SLURM_JOB_ID", "7"), ("SLURM_NNODES", "2")], &[]);
        assert_eq!(
            place,
            Ok(SlurmPlace::Shell(SlurmJob {
                id: 7,
                element: None,
                restarts: 0
            }))
        );
    }

    #[test]
    fn elements_of_arrays_and_requeued_jobs_are_named() {
        let changes = [
            ("SLURM_ARRAY_JOB_ID", "12"),
            ("SLURM_ARRAY_TASK_ID", "3"),
            ("SLURM_RESTART_COUNT", "2"),
        ];
        assert_eq!(
            step(&changes).job,
            SlurmJob {
                id: 1,
                element: Some("12_3".to_owned()),
                restarts: 2
            }
        );
    }

    #[test]
    fn reserved_ports_and_distribution_are_read() {
        assert_eq!(
            step(&[("SLURM_STEP_RESV_PORTS", "12001-12002")]).reserved_port,
            Some(12001)
        );
        assert!(step(&[("SLURM_DISTRIBUTION", "arbitrary")]).is_arbitrary);
    }

    #[test]
    fn contradictions_are_refused_by_name() {
        let refused = |name, value| {
            // As in a direct `srun`, without a batch script around it.
            let changes = [("ENVIRONMENT", ""), (name, value)];
            changed(&STEP, &changes).expect_err("refused").to_string()
        };
        assert!(
            refused("SLURM_STEP_NUM_NODES", "3")
                .starts_with("SLURM's SLURM_STEP_NODELIST has 2 entries for 3")
        );
        assert!(
            refused("SLURM_STEP_TASKS_PER_NODE", "x")
                .contains("`x`, which is not a list of counts")
        );
        assert!(
            refused("SLURM_NODEID", "2")
                .contains("`2`, which is not the index of a node of this step")
        );
        assert!(
            refused("SLURM_PROCID", "").starts_with("SLURM's variable SLURM_PROCID is not set")
        );
        assert!(refused("SLURM_STEP_NODELIST", "n[1").contains("bracket without its partner"));
    }
}
