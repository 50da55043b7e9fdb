//! Infers the options of a launch that the command line leaves out from its place in SLURM. Pure.

use crate::cli::inferred::InferredMeeting;
use crate::say::note::Note;
use crate::slurm::error::SlurmError;
use crate::slurm::gpus::SlurmGpus;
use crate::slurm::place::{SlurmJob, SlurmPlace, SlurmStep};

/// The lowest port used. It is above the ports of system services, and the range ends below 32768,
/// where the kernel's range for outgoing connections begins (`net.ipv4.ip_local_port_range`), so
/// that no connection can occupy the port.
const FIRST_PORT: u64 = 10_000;

/// Number of ports in the range.
const PORTS: u64 = 22_000;

/// Number of ports per job, one per step: jobs with neighbouring ids often run at the same time,
/// and so do a job's steps.
const PORTS_A_JOB: u64 = 8;

/// The inferred options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlurmInference {
    /// How the launchers meet, if there are several.
    pub meeting: Option<InferredMeeting>,
    /// Job and step as run id, for example `14.0`; after a requeue `14.0.r1`.
    pub run_id: Option<String>,
    /// Number of ranks of this launcher, if it differs from torchrun's default.
    pub nproc: Option<usize>,
    /// Set if this is one of several tasks on its node and therefore a single rank.
    pub task: Option<SlurmTask>,
    /// Notes for the user.
    pub notes: Vec<Note>,
}

/// The place of a rank for which SLURM has started a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlurmTask {
    /// Value of `SLURM_LOCALID`.
    pub local_rank: usize,
    /// Value of `SLURM_NODEID`.
    pub group_rank: usize,
    /// Number of tasks of the step on each of its nodes.
    pub tasks_per_node: Vec<usize>,
    /// Whether it sees fewer GPUs than there are ranks on the node (`--gpus-per-task`). Then those
    /// GPUs are its own, and the first of them is device 0 whatever the local rank.
    pub has_own_devices: bool,
}

impl SlurmTask {
    /// Returns the number of tasks of the step on this node.
    pub fn local_world_size(&self) -> usize {
        let tasks_here = self.tasks_per_node.get(self.group_rank);
        tasks_here.copied().unwrap_or(1)
    }

    /// Returns the number of nodes of the step.
    pub fn group_world_size(&self) -> usize {
        self.tasks_per_node.len()
    }
}

impl SlurmInference {
    /// Infers the options. `nproc` is `--nproc-per-node` if it was given, `gpus` are the GPUs of
    /// this process.
    ///
    /// # Errors
    /// Returns an error for a step whose launchers could not find each other, or whose tasks would
    /// each start several ranks.
    pub fn new(
        place: &SlurmPlace,
        gpus: Option<SlurmGpus>,
        nproc: Option<&str>,
    ) -> Result<SlurmInference, SlurmError> {
        match place {
            SlurmPlace::Outside => Ok(SlurmInference::default()),
            SlurmPlace::Shell(job) => Ok(shell(job)),
            SlurmPlace::Batch { job, nnodes, tasks } => {
                Ok(batch(job, *nnodes, *tasks, gpus, nproc))
            }
            SlurmPlace::Step(step) if step.num_tasks == step.nodes.len() => {
                Ok(node(step, gpus, nproc))
            }
            SlurmPlace::Step(step) => task(step, gpus, nproc),
        }
    }
}

fn shell(job: &SlurmJob) -> SlurmInference {
    let job = name(job);
    let note = format!(
        "SLURM {job}: this launch is on this machine alone; `srun rrun …` is on the job's nodes"
    );
    SlurmInference {
        notes: vec![Note::warning(note)],
        ..SlurmInference::default()
    }
}

fn batch(
    job: &SlurmJob,
    nnodes: usize,
    tasks: Option<usize>,
    gpus: Option<SlurmGpus>,
    nproc: Option<&str>,
) -> SlurmInference {
    let by_gpus = gpus.map(|gpus| (gpus.count, gpus.source));
    let by_tasks = tasks.map(|tasks| (tasks, "tasks per node"));
    let inferred = by_gpus.or(by_tasks).filter(|_| nproc.is_none());
    let mut notes = Vec::new();
    if let Some((count, source)) = inferred.filter(|(count, _)| *count > 1) {
        notes.push(Note::info(format!(
            "SLURM {}: {} here ({source})",
            name(job),
            ranks(count)
        )));
    }
    if nnodes > 1 {
        let wanted = "`srun --ntasks-per-node=1 rrun …` uses all";
        let note = format!(
            "SLURM {} has {nnodes} nodes, this launch is on the first alone; {wanted}",
            name(job)
        );
        notes.push(Note::warning(note));
    }
    SlurmInference {
        nproc: inferred.map(|(count, _)| count),
        notes,
        ..SlurmInference::default()
    }
}

/// One task per node: the launcher starts the ranks of its node.
fn node(step: &SlurmStep, gpus: Option<SlurmGpus>, nproc: Option<&str>) -> SlurmInference {
    let inferred = gpus.filter(|_| nproc.is_none());
    let here = match (nproc, inferred) {
        (Some(given), _) => format!("--nproc-per-node {given}"),
        (None, Some(SlurmGpus { count, source })) => format!("{} here ({source})", ranks(count)),
        (None, None) => format!("{} here (no GPU)", ranks(1)),
    };
    let nnodes = step.nodes.len();
    let mut inference = SlurmInference {
        run_id: Some(run_id(step)),
        nproc: inferred.map(|gpus| gpus.count),
        ..SlurmInference::default()
    };
    let label = label(step);
    if nnodes == 1 {
        inference
            .notes
            .push(Note::info(format!("SLURM {label}: 1 node, {here}")));
        return inference;
    }
    let meeting = meeting(step, nnodes, step.node_id);
    let InferredMeeting {
        node_rank,
        master_addr,
        master_port,
        ..
    } = &meeting;
    let at = format!("meeting at {master_addr}:{master_port}");
    inference.notes.push(Note::info(format!(
        "SLURM {label}: node {node_rank} of {nnodes}, {here}, {at}"
    )));
    inference.meeting = Some(meeting);
    inference
}

/// More tasks than nodes: each task is a rank, and its launcher joins as a node with one rank.
fn task(
    step: &SlurmStep,
    gpus: Option<SlurmGpus>,
    nproc: Option<&str>,
) -> Result<SlurmInference, SlurmError> {
    if let Some(nproc) = nproc.filter(|nproc| nproc.trim() != "1") {
        return Err(SlurmError::Launchers {
            tasks: step.tasks_here(),
            nproc: nproc.to_owned(),
        });
    }
    if step.is_arbitrary {
        return Err(SlurmError::Arbitrary);
    }
    let task = SlurmTask {
        local_rank: step.local_id,
        group_rank: step.node_id,
        tasks_per_node: step.tasks_per_node.clone(),
        has_own_devices: gpus.is_some_and(|gpus| gpus.count < step.tasks_here()),
    };
    let meeting = meeting(step, step.num_tasks, step.proc_id);
    let mut notes = Vec::new();
    // Print one line for the step, not one per rank.
    if step.proc_id == 0 {
        let InferredMeeting {
            nnodes: tasks,
            master_addr,
            master_port,
            ..
        } = &meeting;
        let nodes = if step.nodes.len() == 1 {
            "1 node".to_owned()
        } else {
            format!("{} nodes", step.nodes.len())
        };
        let devices = if task.has_own_devices {
            ", each with GPUs of its own (LOCAL_RANK=0)"
        } else {
            ""
        };
        let at = format!("meeting at {master_addr}:{master_port}");
        let note = format!(
            "SLURM {}: {tasks} tasks on {nodes}, one rank each{devices}, {at}",
            label(step)
        );
        notes.push(Note::info(note));
    }
    let run_id = Some(run_id(step));
    Ok(SlurmInference {
        meeting: Some(meeting),
        run_id,
        nproc: Some(1),
        task: Some(task),
        notes,
    })
}

/// Returns the meeting point on the first node, where task 0 is with every distribution but an
/// arbitrary one.
fn meeting(step: &SlurmStep, nnodes: usize, node_rank: usize) -> InferredMeeting {
    let master_addr = step.nodes.first().cloned().unwrap_or_default();
    let master_port = step
        .reserved_port
        .unwrap_or_else(|| port(step.job.id, step.id));
    InferredMeeting {
        nnodes,
        node_rank,
        master_addr,
        master_port,
    }
}

/// Returns the port, which is the same on all nodes without any communication.
fn port(job: u64, step: u64) -> u16 {
    let offset = (job % PORTS * PORTS_A_JOB + step % PORTS_A_JOB) % PORTS;
    u16::try_from(FIRST_PORT + offset).expect("the range ends below 32768")
}

fn run_id(step: &SlurmStep) -> String {
    let (job, id) = (step.job.id, step.id);
    match step.job.restarts {
        0 => format!("{job}.{id}"),
        restarts => format!("{job}.{id}.r{restarts}"),
    }
}

fn label(step: &SlurmStep) -> String {
    format!("{} step {}", name(&step.job), step.id)
}

/// Returns the name of a job: `job 14`, `job 14 (array element 12_3, requeue 1)`.
fn name(job: &SlurmJob) -> String {
    let element = job
        .element
        .as_ref()
        .map(|element| format!("array element {element}"));
    let requeued = (job.restarts > 0).then(|| format!("requeue {}", job.restarts));
    let facts: Vec<String> = element.into_iter().chain(requeued).collect();
    if facts.is_empty() {
        format!("job {}", job.id)
    } else {
        format!("job {} ({})", job.id, facts.join(", "))
    }
}

fn ranks(count: usize) -> String {
    if count == 1 {
        "1 rank".to_owned()
    } else {
        format!("{count} ranks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_steps_and_neighbouring_jobs_differ() {
        let ports: std::collections::BTreeSet<u16> = (1000..1100)
            .flat_map(|job| (0..8).map(move |step| port(job, step)))
            .collect();
        assert_eq!(ports.len(), 800);
        assert!(port(u64::MAX, u64::MAX) < 32_768 && port(0, 0) == 10_000);
    }
}
