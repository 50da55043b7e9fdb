//! Tests of launches as SLURM 22.05 starts them; the variables were recorded in real jobs.

use std::ffi::OsString;
use std::fs;

use serde_json::json;

use super::*;
use crate::cli::{CliRequest, parse};
use crate::plan::error::PlanError;

/// Task number 3, on node2, of `srun` in a job with `-N2 --ntasks-per-node=2 --gres=gpu:2
/// --cpus-per-task=3`.
pub(crate) const STEP: [(&str, &str); 24] = [
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
pub(crate) const BATCH: [(&str, &str); 9] = [
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

/// Returns a machine with eight CPUs.
fn node() -> Node {
    Node {
        cpus: 8,
        executable: "/nonexistent/rrun".into(),
        uuid: "uuid".to_owned(),
        ..Node::default()
    }
}

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

fn cli(line: &str, env: &Environment) -> Cli {
    match parse(line.split(' ').map(OsString::from).collect(), env).expect("a command line") {
        CliRequest::Launch(cli) => *cli,
        other => panic!("no launch but {other:?}"),
    }
}

fn slurm(line: &str, parts: &[&[(&str, &str)]]) -> Slurm {
    let env = environment(parts);
    Slurm::new(&cli(line, &env), &env).expect("an inference")
}

fn plan(line: &str, parts: &[&[(&str, &str)]]) -> Result<LaunchPlan, PlanError> {
    let env = environment(parts);
    LaunchPlan::new(&cli(line, &env), &env, &node())
}

/// Plans an evaluation of four jobs, with more words after `eval`, in a step.
fn evaluation(words: &[&str], parts: &[&[(&str, &str)]]) -> Result<LaunchPlan, PlanError> {
    let dir = tempfile::tempdir().unwrap();
    let job = |index| {
        let name = format!("job{index}");
        json!({"name": name, "arena_env_args": {"environment": "reach"}, "policy_type": "scripted",
               "num_episodes": 1})
    };
    let jobs: Vec<_> = (0..4).map(job).collect();
    let file = dir.path().join("jobs.json");
    fs::write(&file, json!({ "jobs": jobs }).to_string()).unwrap();
    fs::write(dir.path().join("rrun-rank"), "").unwrap();
    let node = Node {
        executable: dir.path().join("rrun"),
        ..node()
    };
    let env = environment(parts);
    let output = dir.path().join("out");
    let line = format!(
        "eval --jobs {} --output {}",
        file.display(),
        output.display()
    );
    let line = [&[line.as_str()], words].concat().join(" ");
    LaunchPlan::new(&cli(&line, &env), &env, &node)
}

/// Returns the changes that turn [`STEP`] into a task of `srun -N2 -n3`, which puts two tasks on
/// the first node and one on the second.
fn of_three(rank: &'static str, node: &'static str) -> [(&'static str, &'static str); 7] {
    [
        ("SLURM_NTASKS", "3"),
        ("SLURM_TASKS_PER_NODE", "2,1"),
        ("SLURM_STEP_NUM_TASKS", "3"),
        ("SLURM_STEP_TASKS_PER_NODE", "2,1"),
        ("SLURM_PROCID", rank),
        ("SLURM_NODEID", node),
        ("SLURM_LOCALID", "0"),
    ]
}

/// Returns the inferred options as a command line.
fn options(line: &str, parts: &[&[(&str, &str)]]) -> String {
    let Cli {
        nnodes,
        node_rank,
        master_addr,
        master_port,
        nproc_per_node,
        rdzv_id,
        ..
    } = slurm(line, parts).cli;
    let at = master_addr
        .map(|addr| format!(" at {addr}:{}", master_port.unwrap_or(0)))
        .unwrap_or_default();
    format!("{node_rank} of {nnodes} x {nproc_per_node}{at} as {rdzv_id}")
}

#[test]
fn outside_of_slurm_nothing_is_inferred() {
    assert_eq!(options("train.py", &[]), "0 of 1:1 x 1 as none");
}

#[test]
fn one_task_a_node_infers_everything() {
    assert_eq!(
        options("train.py", &[&STEP, &ALONE]),
        "1 of 2 x 2 at node1:10008 as 1.0"
    );
    assert_eq!(
        options("--nproc-per-node 8 --rdzv-id x train.py", &[&STEP, &ALONE]),
        "1 of 2 x 8 at node1:10008 as x"
    );
}

#[test]
fn several_tasks_a_node_are_a_rank_each() {
    assert_eq!(
        options("train.py", &[&STEP]),
        "3 of 4 x 1 at node1:10008 as 1.0"
    );
}

#[test]
fn a_rendezvous_option_or_a_word_turns_inference_off() {
    assert_eq!(
        options("--slurm off train.py", &[&STEP]),
        "0 of 1:1 x 1 as none"
    );
    for option in [
        "--standalone",
        "--nnodes 1",
        "--rdzv-backend c10d",
        "--rdzv-endpoint h:1",
        "--master-port 1",
    ] {
        let Cli {
            master_addr,
            nproc_per_node,
            ..
        } = slurm(&format!("{option} train.py"), &[&STEP, &ALONE]).cli;
        assert_eq!(
            (master_addr, nproc_per_node.as_str()),
            (None, "1"),
            "{option}"
        );
    }
    assert_eq!(
        options("train.py", &[&STEP, &ALONE, &[("PET_NNODES", "1")]]),
        "0 of 1 x 1 as none"
    );
}

#[test]
fn the_batch_script_is_a_launch_on_one_node() {
    assert_eq!(options("train.py", &[&BATCH]), "0 of 1:1 x 2 as none");
    assert!(slurm("train.py", &[&BATCH]).notes[1].contains("this launch is on the first alone"));
}

#[test]
fn launchers_that_crowd_a_node_are_noticed() {
    let notes = |line| {
        slurm(line, &[&STEP])
            .notes
            .iter()
            .map(|note| note.to_string())
            .collect::<String>()
    };
    assert!(
        notes("--nnodes 2 --rdzv-endpoint node1:1 t.py")
            .starts_with("SLURM runs 2 tasks on this node")
    );
    assert_eq!(notes("--nnodes 4 --node-rank 3 --master-port 1 t.py"), "");
    assert_eq!(notes("--standalone t.py"), "");
}

#[test]
fn a_task_that_is_a_rank_has_the_place_that_slurm_gave_it() {
    let env = environment(&[&STEP]);
    let task = slurm("t.py", &[&STEP]).task.expect("a task");
    let of = |name: &str| {
        of_task(&task, 3, &env)
            .get(name)
            .cloned()
            .unwrap_or_default()
    };
    assert_eq!(
        [of("RANK"), of("ROLE_RANK"), of("GROUP_RANK")],
        ["3", "3", "1"]
    );
    assert_eq!(
        [
            of("LOCAL_WORLD_SIZE"),
            of("GROUP_WORLD_SIZE"),
            of("OMP_NUM_THREADS")
        ],
        ["2", "2", "3"]
    );
    assert_eq!(of("LOCAL_RANK"), "", "the plan has it");
}

#[test]
fn a_gpu_of_its_own_is_device_0() {
    let gpu = [("CUDA_VISIBLE_DEVICES", "1")];
    let slurm = slurm("--virtual-local-rank t.py", &[&STEP, &gpu]);
    let task = slurm.task.expect("a task");
    assert_eq!(of_task(&task, 3, &environment(&[&STEP]))["LOCAL_RANK"], "0");
    assert!(!slurm.cli.virtual_local_rank);
}

#[test]
fn slurm_s_signals_and_its_patience_reach_the_plan() {
    let env = environment(&[&STEP]);
    let mut of_step = plan("--slurm off t.py", &[&STEP]).expect("a plan");
    assert_eq!(
        (of_step.signals.sender, of_step.shutdown_timeout.as_secs()),
        (Sender::Anyone, 30)
    );
    slurm("--nnodes 1 t.py", &[&STEP]).complete(&mut of_step, &env, &node());
    assert_eq!(
        (of_step.signals.sender, of_step.shutdown_timeout.as_secs()),
        (Sender::SlurmToStep, 27)
    );
    let of_script = plan("--shutdown-timeout 90 t.py", &[&BATCH]).expect("a plan");
    assert_eq!(
        (
            of_script.signals.sender,
            of_script.shutdown_timeout.as_secs()
        ),
        (Sender::SlurmToScript, 90)
    );
}

#[test]
fn ranks_on_fewer_cpus_than_they_are_is_said() {
    assert!(bound(1, 4).is_some_and(|note| {
        note.starts_with("the 4 ranks of this node share 1 CPU, to which srun")
    }));
    assert_eq!([bound(4, 4), bound(0, 4), bound(1, 1)], [None, None, None]);
}

#[test]
fn variables_that_contradict_each_other_refuse_the_launch() {
    let err = plan("t.py", &[&STEP, &[("SLURM_NODEID", "7")]])
        .expect_err("refused")
        .to_string();
    assert!(
        err.contains("SLURM_NODEID is `7`") && err.contains("--slurm off"),
        "{err}"
    );
    assert!(plan("--nnodes 1 t.py", &[&STEP, &[("SLURM_NODEID", "7")]]).is_ok());
}

#[test]
fn an_evaluation_by_uneven_tasks_has_as_many_ranks_as_there_are_tasks() {
    for (rank, node) in [("0", "0"), ("2", "1")] {
        let plan = evaluation(&[], &[&STEP, &of_three(rank, node)]).expect("a plan");
        assert_eq!((plan.nnodes, plan.ranks.len()), (3, 1), "rank {rank}");
        assert_eq!(plan.eval.unwrap().run.world_size, 3, "rank {rank}");
    }
}

#[test]
fn a_placement_fits_uneven_tasks() {
    let placed = |workers: &'static str, rank, node| {
        let words = ["--placement", workers];
        let planned = evaluation(&words, &[&STEP, &of_three(rank, node)]);
        planned.map(|plan| plan.eval.unwrap().run.world_size)
    };
    for (rank, node) in [("0", "0"), ("2", "1")] {
        assert_eq!(placed("env,rollout:0-2", rank, node).unwrap(), 3);
        let refused = placed("env,rollout:0-3", rank, node).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "srun starts 3 tasks, but the placement has 4 rollout worker(s), and each task is the \
             rank of one; change one of them"
        );
    }
}

#[test]
fn a_quick_run_of_several_tasks_is_refused_by_each() {
    // srun -N1 -n4
    let one_node = [
        ("SLURM_NNODES", "1"),
        ("SLURM_TASKS_PER_NODE", "4"),
        ("SLURM_STEP_NODELIST", "node1"),
        ("SLURM_STEP_NUM_NODES", "1"),
        ("SLURM_STEP_TASKS_PER_NODE", "4"),
        ("SLURM_NODEID", "0"),
    ];
    let refused = evaluation(&["--quick"], &[&STEP, &one_node]);
    let refused = refused.unwrap_err().to_string();
    assert_eq!(
        refused,
        "--quick runs under one launcher, but srun starts 4, one for each task; use \
         `srun --ntasks=1 rrun --nproc-per-node N eval --quick …`"
    );
}
