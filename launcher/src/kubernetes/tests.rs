//! Launches in pods of Indexed Jobs and JobSets, from their variables to the plan.

use crate::slurm::tests::{STEP, answer};
use crate::tests::{Variables, cases};

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
        "JOB" => &JOB,
        "JOBSET" => &JOBSET,
        "STEP" => &STEP,
        _ => return None,
    })
}

#[test]
fn the_variables_of_a_pod_mean_a_launch() {
    rig::cases::check(cases("kubernetes/pods.txt"), |given| {
        answer(given, variables)
    });
}
