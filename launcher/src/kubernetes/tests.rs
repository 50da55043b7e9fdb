//! Tests of launches in pods of Indexed Jobs and JobSets.

use std::ffi::OsString;

use super::*;
use crate::cli::{CliRequest, parse};
use crate::node::NodeGpu;
use crate::plan::error::PlanError;
use crate::slurm::tests::STEP;

/// What pod 2 of the Job `eval` in deploy/k8s/indexed-job.yaml has.
const JOB: [(&str, &str); 4] = [
    ("JOB_COMPLETION_INDEX", "2"),
    ("JOB_COMPLETIONS", "4"),
    ("JOB_UID", "1f0c3ab2-77de-4a5e-9a3d-0242ac120002"),
    ("KUBERNETES_SERVICE_HOST", "10.96.0.1"),
];

/// The host name of this pod.
const HOST: &str = "eval-2.eval.robots.svc.cluster.local";

/// What pod 2 of the second Job of the replicated job `workers` of the JobSet `set` has, with two
/// replicas of four pods.
const JOBSET: [(&str, &str); 6] = [
    ("JOB_COMPLETION_INDEX", "2"),
    ("JOB_COMPLETIONS", "4"),
    ("JOBSET_JOB_INDEX", "1"),
    ("JOBSET_REPLICATEDJOB_REPLICAS", "2"),
    ("JOBSET_RESTART_ATTEMPT", "0"),
    ("JOBSET_UID", "9e107d9d-372b-4b82-8abd-7f1a2b3c4d5e"),
];

/// The host name of this pod.
const JOBSET_HOST: &str = "set-workers-1-2.set.robots.svc.cluster.local";

fn environment(parts: &[&[(&str, &str)]]) -> Environment {
    let variables = parts
        .iter()
        .copied()
        .flatten()
        .chain(&[("PYTHON_EXEC", "py")]);
    variables.fold(Environment::default(), |env, (name, value)| {
        env.with(name, value)
    })
}

/// Returns a machine with eight CPUs and these GPUs.
fn node(full_name: &str, gpus: usize) -> Node {
    Node {
        cpus: 8,
        gpus: vec![NodeGpu::default(); gpus],
        executable: "/nonexistent/rrun".into(),
        uuid: "uuid".to_owned(),
        full_name: full_name.to_owned(),
        ..Node::default()
    }
}

fn cli(line: &str, env: &Environment) -> Cli {
    match parse(line.split(' ').map(OsString::from).collect(), env).expect("a command line") {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

fn infer(line: &str, host: &str, parts: &[&[(&str, &str)]]) -> Result<Kubernetes, KubernetesError> {
    let env = environment(parts);
    Kubernetes::new(&cli(line, &env), &env, &node(host, 0))
}

/// Returns the inferred options as a command line.
fn options(line: &str, host: &str, parts: &[&[(&str, &str)]]) -> String {
    let Cli {
        nnodes,
        node_rank,
        master_addr,
        master_port,
        nproc_per_node,
        rdzv_id,
        ..
    } = infer(line, host, parts).expect("an inference").cli;
    let at = master_addr
        .map(|addr| format!(" at {addr}:{}", master_port.unwrap_or(0)))
        .unwrap_or_default();
    format!("{node_rank} of {nnodes} x {nproc_per_node}{at} as {rdzv_id}")
}

#[track_caller]
fn refused(host: &str, parts: &[&[(&str, &str)]]) -> String {
    infer("t.py", host, parts).expect_err("refused").to_string()
}

fn notes(host: &str, parts: &[&[(&str, &str)]]) -> Vec<String> {
    let notes = infer("t.py", host, parts).expect("an inference").notes;
    notes.into_iter().map(String::from).collect()
}

#[test]
fn outside_of_a_job_nothing_is_inferred() {
    assert_eq!(options("t.py", "web-0", &[]), "0 of 1:1 x 1 as none");
    let pod = [("KUBERNETES_SERVICE_HOST", "10.96.0.1")];
    assert_eq!(options("t.py", "web-0", &[&pod]), "0 of 1:1 x 1 as none");
}

#[test]
fn a_pod_of_an_indexed_job_is_a_node() {
    assert_eq!(
        options("t.py", HOST, &[&JOB]),
        "2 of 4 x 1 at eval-0.eval.robots.svc.cluster.local:29500 as eval.1f0c3ab2"
    );
    assert_eq!(
        notes(HOST, &[&JOB]),
        [
            "Kubernetes Job eval: node 2 of 4, 1 rank here (no GPU), meeting at \
             eval-0.eval.robots.svc.cluster.local:29500"
        ]
    );
}

#[test]
fn a_rank_is_started_for_each_gpu_of_the_pod() {
    let env = environment(&[&JOB]);
    let ranks = |line: &str| {
        let kubernetes = Kubernetes::new(&cli(line, &env), &env, &node(HOST, 8));
        kubernetes.expect("an inference").cli.nproc_per_node
    };
    assert_eq!(
        [ranks("t.py"), ranks("--nproc-per-node 2 t.py")],
        ["8", "2"]
    );
}

#[test]
fn pods_of_several_jobs_of_a_jobset_are_counted_through() {
    assert_eq!(
        options("t.py", JOBSET_HOST, &[&JOBSET]),
        "6 of 8 x 1 at set-workers-0-0.set.robots.svc.cluster.local:29500 as set-workers.9e107d9d"
    );
}

#[test]
fn a_restart_of_the_jobset_has_a_run_id_of_its_own() {
    let again = [("JOBSET_RESTART_ATTEMPT", "2")];
    let line = options("t.py", JOBSET_HOST, &[&JOBSET, &again]);
    assert!(line.ends_with("as set-workers.9e107d9d.r2"), "{line}");
    let said = notes(JOBSET_HOST, &[&JOBSET, &again]).concat();
    assert!(
        said.starts_with("Kubernetes JobSet set-workers (restart 2): node 6 of 8"),
        "{said}"
    );
}

#[test]
fn a_job_of_one_pod_meets_nobody() {
    let one = [("JOB_COMPLETIONS", "1"), ("JOB_COMPLETION_INDEX", "0")];
    assert_eq!(
        options("t.py", "eval-0", &[&JOB, &one]),
        "0 of 1:1 x 1 as eval.1f0c3ab2"
    );
}

#[test]
fn a_given_address_replaces_the_name_of_the_first_pod() {
    // With hostNetwork, a pod has the name of its machine.
    let given = [("MASTER_ADDR", "10.1.2.3"), ("MASTER_PORT", "23456")];
    assert_eq!(
        options("t.py", "gpu07", &[&JOB, &given]),
        "2 of 4 x 1 at 10.1.2.3:23456 as 1f0c3ab2"
    );
}

#[test]
fn a_rendezvous_option_or_a_word_turns_inference_off() {
    for line in ["--kubernetes off t.py", "--standalone t.py"] {
        let kubernetes = infer(line, HOST, &[&JOB]).expect("nothing to refuse");
        assert_eq!(
            (kubernetes.cli.master_addr, kubernetes.is_of_job),
            (None, false)
        );
    }
    // Kubeflow's trainer sets these.
    let kubeflow = [("PET_NNODES", "4"), ("PET_NODE_RANK", "2")];
    assert_eq!(
        options("t.py", HOST, &[&JOB, &kubeflow]),
        "2 of 4 x 1 as none"
    );
}

#[test]
fn an_index_alone_is_a_launch_of_one_pod_and_is_said() {
    let index = [("JOB_COMPLETION_INDEX", "2")];
    assert_eq!(options("t.py", HOST, &[&index]), "0 of 1:1 x 1 as none");
    let said = notes(HOST, &[&index]).concat();
    assert!(said.contains("JOB_COMPLETIONS is not set"), "{said}");
}

#[test]
fn variables_without_their_partner_are_refused_by_name() {
    let said = refused(HOST, &[&[("JOB_COMPLETIONS", "4")]]);
    assert!(
        said.starts_with(
            "Kubernetes: JOB_COMPLETIONS is set, but JOB_COMPLETION_INDEX is not (a Job with \
             `completionMode: Indexed` has it)"
        ),
        "{said}"
    );
    let said = refused(HOST, &[&JOB, &[("JOBSET_JOB_INDEX", "0")]]);
    assert!(
        said.contains("JOBSET_JOB_INDEX is set, but JOBSET_REPLICATEDJOB_REPLICAS is not"),
        "{said}"
    );
    let said = refused(HOST, &[&JOB, &[("JOBSET_REPLICATEDJOB_REPLICAS", "2")]]);
    assert!(said.contains("but JOBSET_JOB_INDEX is not"), "{said}");
}

#[test]
fn values_that_cannot_be_are_refused_by_name() {
    let said = |name, value| refused(HOST, &[&JOB, &[(name, value)]]);
    assert!(
        said("JOB_COMPLETIONS", "2").contains(
            "JOB_COMPLETION_INDEX is `2`, expected less than JOB_COMPLETIONS, which is 2;"
        )
    );
    assert!(said("JOB_COMPLETIONS", "four").contains("is `four`, expected a whole number"));
    assert!(said("JOB_COMPLETIONS", "-1").contains("is `-1`, expected a whole number"));
    assert!(said("MASTER_PORT", "0").contains("MASTER_PORT is `0`, expected a port"));
    assert!(said("MASTER_PORT", "70000").contains("MASTER_PORT is `70000`, expected a port"));
    let set = [
        ("JOBSET_JOB_INDEX", "2"),
        ("JOBSET_REPLICATEDJOB_REPLICAS", "2"),
    ];
    assert!(refused(HOST, &[&JOB, &set]).contains("JOBSET_JOB_INDEX is `2`, expected less than"));
    let most = [("JOB_COMPLETIONS", "18446744073709551615")];
    assert!(refused(JOBSET_HOST, &[&JOBSET, &most]).contains("expected a number of pods"));
}

#[test]
fn a_pod_that_others_cannot_find_is_refused() {
    assert!(refused("eval-2", &[&JOB]).contains("set `subdomain` of the pod template"));
    let said = refused("gpu07", &[&JOB]);
    assert!(
        said.contains("the name of this pod is `gpu07`, expected `<job>-2`"),
        "{said}"
    );
    // The index of the replica is in the name, too.
    assert!(refused(HOST, &[&JOBSET]).contains("expected `<job>-1-2`"));
}

fn plan(line: &str, parts: &[&[(&str, &str)]]) -> Result<LaunchPlan, PlanError> {
    let env = environment(parts);
    LaunchPlan::new(&cli(line, &env), &env, &node(HOST, 0))
}

#[test]
fn the_plan_knows_that_pods_come_back_and_how_long_they_may_take_to_end() {
    let of_job = plan("t.py", &[&JOB]).expect("a plan");
    let returns = of_job.rendezvous.as_ref().map(|how| how.nodes_return);
    assert_eq!(
        (returns, of_job.shutdown_timeout.as_secs()),
        (Some(true), 27)
    );
    let given = plan("--nnodes 2 --shutdown-timeout 90 t.py", &[&JOB]).expect("a plan");
    let returns = given.rendezvous.as_ref().map(|how| how.nodes_return);
    assert_eq!(
        (returns, given.shutdown_timeout.as_secs()),
        (Some(false), 90)
    );
}

#[test]
fn within_a_slurm_step_the_variables_of_slurm_count() {
    let plan = plan("t.py", &[&STEP, &JOB]).expect("a plan");
    assert_eq!(plan.run_id, "1.0");
    assert!(plan.notes.iter().all(|note| !note.contains("Kubernetes")));
}

#[test]
fn without_slurm_s_inference_the_pod_counts() {
    let plan = plan("--slurm off t.py", &[&STEP, &JOB]).expect("a plan");
    assert_eq!(plan.run_id, "eval.1f0c3ab2");
}
