//! Launches as SLURM 22.05 and Kubernetes start them, from their variables to the plan. Those of
//! SLURM were recorded in real jobs.

use jobs::count::counted;

use crate::plan::RendezvousPlan;
use crate::tests::{Variables, cases, planned};

/// Task number 3, on node2, of `srun` in a job with `-N2 --ntasks-per-node=2 --gres=gpu:2
/// --cpus-per-task=3`.
pub const STEP: [(&str, &str); 24] = [
    ("CUDA_VISIBLE_DEVICES", "0,1"),
    ("ENVIRONMENT", "BATCH"),
    ("HOSTNAME", "node1"),
    ("SLURMD_NODENAME", "node2"),
    ("SLURM_CPUS_ON_NODE", "6"),
    ("SLURM_CPUS_PER_TASK", "3"),
    ("SLURM_DISTRIBUTION", "block"),
    ("SLURM_GPUS_ON_NODE", "2"),
    ("SLURM_GTIDS", "2,3"),
    ("SLURM_JOB_GPUS", "0,1"),
    ("SLURM_JOB_ID", "1"),
    ("SLURM_JOB_NODELIST", "node[1-2]"),
    ("SLURM_LOCALID", "1"),
    ("SLURM_NNODES", "2"),
    ("SLURM_NODEID", "1"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_PROCID", "3"),
    ("SLURM_STEP_GPUS", "0,1"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_STEP_NODELIST", "node[1-2]"),
    ("SLURM_STEP_NUM_NODES", "2"),
    ("SLURM_STEP_NUM_TASKS", "4"),
    ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
    ("SLURM_TASKS_PER_NODE", "2(x2)"),
];

/// The changes that turn [`STEP`] into the only task of its node.
const ALONE: [(&str, &str); 6] = [
    ("SLURM_NTASKS", "2"),
    ("SLURM_TASKS_PER_NODE", "1(x2)"),
    ("SLURM_STEP_NUM_TASKS", "2"),
    ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
    ("SLURM_PROCID", "1"),
    ("SLURM_LOCALID", "0"),
];

/// The batch script of the same job.
const BATCH: [(&str, &str); 9] = [
    ("CUDA_VISIBLE_DEVICES", "0,1"),
    ("ENVIRONMENT", "BATCH"),
    ("SLURM_JOB_ID", "1"),
    ("SLURM_NNODES", "2"),
    ("SLURM_NODEID", "0"),
    ("SLURM_NTASKS", "4"),
    ("SLURM_PROCID", "0"),
    ("SLURM_TASKS_PER_NODE", "2(x2)"),
    ("PYTHON_EXEC", "py"),
];

/// The only task of a step on one node, `srun -N1 -n1`.
const ONE_NODE: [(&str, &str); 9] = [
    ("SLURM_NNODES", "1"),
    ("SLURM_NTASKS", "1"),
    ("SLURM_TASKS_PER_NODE", "1"),
    ("SLURM_STEP_NODELIST", "node1"),
    ("SLURM_STEP_NUM_NODES", "1"),
    ("SLURM_STEP_NUM_TASKS", "1"),
    ("SLURM_STEP_TASKS_PER_NODE", "1"),
    ("SLURM_NODEID", "0"),
    ("SLURM_PROCID", "0"),
];

/// The changes that turn [`STEP`] into a task of `srun -N2 -n3`, which puts two tasks on the first
/// node and one on the second.
const OF_THREE: [(&str, &str); 5] = [
    ("SLURM_NTASKS", "3"),
    ("SLURM_TASKS_PER_NODE", "2,1"),
    ("SLURM_STEP_NUM_TASKS", "3"),
    ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
    ("SLURM_LOCALID", "0"),
];

/// What pod 2 of the Job `eval` in deploy/k8s/indexed-job.yaml has.
const JOB: [(&str, &str); 5] = [
    ("JOB_COMPLETION_INDEX", "2"),
    ("JOB_COMPLETIONS", "4"),
    ("JOB_UID", "1f0c3ab2-77de-4a5e-9a3d-0242ac120002"),
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
    ("host", "eval-2.eval.robots.svc.cluster.local"),
];

/// What pod 2 of the second Job of the replicated job `workers` of the JobSet `set` has, with two
/// replicas of four pods.
const JOBSET: [(&str, &str); 7] = [
    ("JOB_COMPLETION_INDEX", "2"),
    ("JOB_COMPLETIONS", "4"),
    ("JOBSET_JOB_INDEX", "1"),
    ("JOBSET_REPLICATEDJOB_REPLICAS", "2"),
    ("JOBSET_RESTART_ATTEMPT", "0"),
    ("JOBSET_UID", "9e107d9d-372b-4b82-8abd-7f1a2b3c4d5e"),
    ("host", "set-workers-1-2.set.robots.svc.cluster.local"),
];

fn variables(name: &str) -> Option<Variables> {
    Some(match name {
        "STEP" => &STEP,
        "ALONE" => &ALONE,
        "ONE_NODE" => &ONE_NODE,
        "OF_THREE" => &OF_THREE,
        "BATCH" => &BATCH,
        "JOB" => &JOB,
        "JOBSET" => &JOBSET,
        _ => return None,
    })
}

/// Says what follows for a launch from where it is started.
fn answer(given: &str) -> String {
    let plan = match planned(given, variables) {
        Ok(plan) => plan,
        Err(err) => return err,
    };
    let nodes = |met: &RendezvousPlan| {
        let returning = if met.nodes_return { " that return" } else { "" };
        let (rank, count) = (met.node_rank, met.max);
        format!(
            "node {rank} of {count}{returning}, at {}:{}",
            met.host, met.port
        )
    };
    let nodes = plan.rendezvous.as_ref().map(nodes);
    let first = &plan.ranks[0];
    let variables: Vec<_> = first.env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let mut lines = vec![
        nodes.unwrap_or_else(|| "one node".to_owned()),
        format!(
            "{} in run {}",
            counted(plan.ranks.len(), "rank"),
            plan.run_id
        ),
        format!("the first has {}", variables.join(" ")),
        format!(
            "signals by {:?}, {} s to end",
            plan.signals.sender,
            plan.shutdown_timeout.as_secs()
        ),
    ];
    let world = plan.eval.as_ref().map(|eval| eval.run.world_size);
    lines.extend(world.map(|size| format!("an evaluation of {size} ranks")));
    let is_about_place = |note: &&str| {
        ["SLURM", "Kubernetes", "srun"]
            .iter()
            .any(|it| note.contains(it))
    };
    let notes = plan.notes.iter().map(|note| note.text.as_str());
    lines.extend(
        notes
            .filter(is_about_place)
            .map(|note| format!("note: {note}")),
    );
    lines.join("\n")
}

#[test]
fn the_variables_of_slurm_mean_a_launch() {
    rig::cases::check(cases("cluster/slurm.txt"), answer);
}

#[test]
fn the_variables_of_a_pod_mean_a_launch() {
    rig::cases::check(cases("cluster/kubernetes.txt"), answer);
}
