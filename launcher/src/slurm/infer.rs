//! Infers the options of a launch that the command line leaves out from its place in SLURM. Pure.

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

/// Where launchers meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferredMeeting {
    /// `--nnodes`: number of nodes, or of tasks if each task is a rank.
    pub nnodes: usize,
    /// `--node-rank`: index of this launcher.
    pub node_rank: usize,
    /// `--master-addr`: the first node.
    pub master_addr: String,
    /// `--master-port`: a port derived from the ids of job and step.
    pub master_port: u16,
}

/// The place of a rank for which SLURM has started a launcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlurmTask {
    /// Value of `SLURM_LOCALID`.
    pub local_rank: usize,
    /// Number of tasks of the step on this node.
    pub local_world_size: usize,
    /// Value of `SLURM_NODEID`.
    pub group_rank: usize,
    /// Number of nodes of the step.
    pub group_world_size: usize,
    /// Whether it sees fewer GPUs than there are ranks on the node (`--gpus-per-task`). Then those
    /// GPUs are its own, and the first of them is device 0 whatever the local rank.
    pub has_own_devices: bool,
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
            tasks: step.tasks_here,
            nproc: nproc.to_owned(),
        });
    }
    if step.is_arbitrary {
        return Err(SlurmError::Arbitrary);
    }
    let task = SlurmTask {
        local_rank: step.local_id,
        local_world_size: step.tasks_here,
        group_rank: step.node_id,
        group_world_size: step.nodes.len(),
        has_own_devices: gpus.is_some_and(|gpus| gpus.count < step.tasks_here),
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

    fn job(id: u64) -> SlurmJob {
        SlurmJob {
            id,
            element: None,
            restarts: 0,
        }
    }

    /// Task 3 of 4 on the second of two nodes.
    fn step() -> SlurmStep {
        SlurmStep {
            job: job(14),
            id: 0,
            nodes: vec!["node1".to_owned(), "node2".to_owned()],
            node_id: 1,
            proc_id: 3,
            local_id: 1,
            num_tasks: 4,
            tasks_here: 2,
            reserved_port: None,
            is_arbitrary: false,
        }
    }

    /// The only task of the second of two nodes.
    fn alone() -> SlurmStep {
        SlurmStep {
            num_tasks: 2,
            tasks_here: 1,
            proc_id: 1,
            local_id: 0,
            ..step()
        }
    }

    fn gpus(count: usize) -> Option<SlurmGpus> {
        Some(SlurmGpus {
            count,
            source: "CUDA_VISIBLE_DEVICES",
        })
    }

    fn inferred(step: SlurmStep, gpus: Option<SlurmGpus>, nproc: Option<&str>) -> SlurmInference {
        SlurmInference::new(&SlurmPlace::Step(step), gpus, nproc).expect("an inference")
    }

    #[test]
    fn one_task_a_node_launches_a_rank_a_gpu_and_meets_at_the_first_host() {
        let inference = inferred(alone(), gpus(4), None);
        let meeting = InferredMeeting {
            nnodes: 2,
            node_rank: 1,
            master_addr: "node1".to_owned(),
            master_port: 10_112,
        };
        assert_eq!(
            (inference.meeting, inference.nproc),
            (Some(meeting), Some(4))
        );
        assert_eq!(
            (inference.run_id.as_deref(), inference.task),
            (Some("14.0"), None)
        );
        let line = "SLURM job 14 step 0: node 1 of 2, 4 ranks here (CUDA_VISIBLE_DEVICES), meeting at node1:10112";
        assert_eq!(inference.notes, [line]);
    }

    #[test]
    fn a_given_number_of_ranks_is_kept() {
        let inference = inferred(alone(), gpus(4), Some("2"));
        assert_eq!(
            (inference.nproc, inference.meeting.map(|it| it.nnodes)),
            (None, Some(2))
        );
    }

    #[test]
    fn a_single_node_meets_on_any_free_port() {
        let alone = SlurmStep {
            nodes: vec!["node1".to_owned()],
            num_tasks: 1,
            node_id: 0,
            ..alone()
        };
        let inference = inferred(alone, None, None);
        assert_eq!(
            (
                inference.meeting,
                inference.nproc,
                inference.run_id.as_deref()
            ),
            (None, None, Some("14.0"))
        );
        assert_eq!(
            inference.notes,
            ["SLURM job 14 step 0: 1 node, 1 rank here (no GPU)"]
        );
    }

    #[test]
    fn each_of_several_tasks_a_node_is_a_rank() {
        let inference = inferred(step(), gpus(2), None);
        assert_eq!(
            inference.meeting.map(|it| (it.nnodes, it.node_rank)),
            Some((4, 3))
        );
        let task = SlurmTask {
            local_rank: 1,
            local_world_size: 2,
            group_rank: 1,
            group_world_size: 2,
            has_own_devices: false,
        };
        assert_eq!(
            (inference.task, inference.nproc, inference.notes),
            (Some(task), Some(1), Vec::new())
        );
    }

    #[test]
    fn a_task_with_a_gpu_of_its_own_has_it_as_device_0() {
        assert!(
            inferred(step(), gpus(1), None)
                .task
                .is_some_and(|task| task.has_own_devices)
        );
        assert!(
            inferred(step(), None, None)
                .task
                .is_some_and(|task| !task.has_own_devices)
        );
    }

    #[test]
    fn the_first_task_speaks_for_all() {
        let first = SlurmStep {
            proc_id: 0,
            local_id: 0,
            node_id: 0,
            ..step()
        };
        let line = "SLURM job 14 step 0: 4 tasks on 2 nodes, one rank each, meeting at node1:10112";
        assert_eq!(inferred(first, gpus(2), Some("1")).notes, [line]);
    }

    #[test]
    fn tasks_that_would_each_launch_several_ranks_are_refused() {
        let err = SlurmInference::new(&SlurmPlace::Step(step()), gpus(2), Some("2"))
            .expect_err("refused")
            .to_string();
        assert!(
            err.starts_with(
                "SLURM runs 2 tasks on this node and each would launch --nproc-per-node 2: "
            ),
            "{err}"
        );
    }

    #[test]
    fn an_arbitrary_distribution_hides_task_0() {
        let arbitrary = |step| {
            SlurmInference::new(
                &SlurmPlace::Step(SlurmStep {
                    is_arbitrary: true,
                    ..step
                }),
                None,
                None,
            )
        };
        assert_eq!(arbitrary(step()), Err(SlurmError::Arbitrary));
        assert!(
            arbitrary(alone()).is_ok(),
            "a node's rank is its index in the list, wherever task 0 is"
        );
    }

    #[test]
    fn the_batch_script_launches_on_its_own_node() {
        let batch = |nnodes, tasks, gpus| {
            let inference = SlurmInference::new(
                &SlurmPlace::Batch {
                    job: job(7),
                    nnodes,
                    tasks,
                },
                gpus,
                None,
            );
            inference
                .map(|it| {
                    (
                        it.nproc,
                        it.notes
                            .iter()
                            .map(|note| note.to_string())
                            .collect::<String>(),
                        it.meeting,
                    )
                })
                .expect("an inference")
        };
        assert_eq!(batch(1, Some(2), gpus(4)).0, Some(4));
        assert_eq!(
            batch(1, Some(2), None).1,
            "SLURM job 7: 2 ranks here (tasks per node)"
        );
        assert_eq!(batch(1, None, None), (None, String::new(), None));
        assert!(
            batch(2, None, None)
                .1
                .starts_with("SLURM job 7 has 2 nodes, this launch is on the first alone")
        );
    }

    #[test]
    fn requeued_jobs_have_an_id_of_their_own() {
        let again = SlurmJob {
            restarts: 1,
            element: Some("12_3".to_owned()),
            ..job(14)
        };
        let inference = inferred(
            SlurmStep {
                job: again,
                ..alone()
            },
            None,
            None,
        );
        assert_eq!(inference.run_id.as_deref(), Some("14.0.r1"));
        assert!(
            inference.notes[0].starts_with("SLURM job 14 (array element 12_3, requeue 1) step 0: ")
        );
    }

    #[test]
    fn ports_of_steps_and_neighbouring_jobs_differ() {
        let ports: std::collections::BTreeSet<u16> = (1000..1100)
            .flat_map(|job| (0..8).map(move |step| port(job, step)))
            .collect();
        assert_eq!(ports.len(), 800);
        assert!(port(u64::MAX, u64::MAX) < 32_768 && port(0, 0) == 10_000);
    }

    #[test]
    fn a_reserved_port_is_taken() {
        let reserved = SlurmStep {
            reserved_port: Some(12_001),
            ..alone()
        };
        assert_eq!(
            inferred(reserved, None, None)
                .meeting
                .map(|it| it.master_port),
            Some(12_001)
        );
    }
}
