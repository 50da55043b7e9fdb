//! Tests of evaluations in a step of SLURM on several nodes.

use std::process::Command;

use serde_json::{Value, json};

use crate::nodes::cluster::{Cluster, sh};
use rig::threads::minds_sigterm;

/// Starts two launchers as the tasks of a step; returns `false` without the program of the ranks.
fn started(cluster: &mut Cluster) -> bool {
    let rrun = rig::rrun();
    let rank = std::path::Path::new(rrun).with_file_name("rrun-rank");
    if !rank.exists() {
        eprintln!("skipped, there is no {}", rank.display());
        return false;
    }
    let jobs = json!({"jobs": [{
        "name": "push", "num_episodes": 40_000, "policy_type": "scripted",
        "arena_env_args": {"environment": "push", "num_envs": 1, "enable_cameras": false},
    }]});
    std::fs::write(cluster.path("jobs.json"), jobs.to_string()).unwrap();
    for (rank, node) in ["0", "1"].into_iter().enumerate() {
        let mut command = Command::new(rrun);
        command.envs([
            ("SLURM_JOB_ID", "14"),
            ("SLURM_NODEID", node),
            ("SLURM_PROCID", node),
            ("SLURM_LOCALID", "0"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "one,two"),
            ("SLURM_STEP_NUM_NODES", "2"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ]);
        let words = "--nproc-per-node 1 eval --jobs jobs.json --output run --shard episodes \
                     --no-dataset --no-video";
        let words: Vec<&str> = words.split_whitespace().collect();
        cluster.fixed_as(command, 2, rank, &words);
    }
    true
}

/// Tells both launchers to stop, and checks that both end in order and there is a report.
#[track_caller]
fn end_in_order(cluster: &mut Cluster) {
    for node in [0, 1] {
        cluster.signal(node, "TERM");
    }
    for node in [0, 1] {
        let code = cluster.end(node);
        let said = cluster.stderr(node);
        assert_eq!(code, 1, "{said}");
        assert!(
            said.contains("shutting down workers (SIGTERM)") && said.contains("to resume: rrun "),
            "{said}"
        );
    }
    let said = cluster.stderr(0) + &cluster.stderr(1);
    eprintln!("{said}");
    let report: Value = serde_json::from_str(&cluster.text("run/report.json")).unwrap();
    assert_eq!(report["partial"], true, "{said}");
}

#[test]
fn a_step_of_two_nodes_that_is_told_to_stop_in_the_middle_leaves_a_report() {
    let mut cluster = Cluster::new();
    if !started(&mut cluster) {
        return;
    }
    cluster.wait_until("some episodes", |cluster| cluster.finished_episodes() >= 4);
    end_in_order(&mut cluster);
}

#[test]
fn a_step_of_two_nodes_that_is_told_to_stop_at_once_ends_in_order() {
    let mut cluster = Cluster::new();
    if !started(&mut cluster) {
        return;
    }
    cluster.wait_until("the launchers have begun", |cluster| {
        [0, 1].iter().all(|&node| minds_sigterm(cluster.pid(node)))
    });
    end_in_order(&mut cluster);
}

#[test]
fn of_a_rank_that_is_a_task_a_failure_names_the_local_rank() {
    let mut cluster = Cluster::new();
    let port = cluster.port().to_string();
    for task in ["0", "1"] {
        let mut command = Command::new(rig::rrun());
        command.envs([
            ("SLURM_JOB_ID", "14"),
            ("SLURM_NODEID", "0"),
            ("SLURM_PROCID", task),
            ("SLURM_LOCALID", task),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NODELIST", "localhost"),
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_TASKS_PER_NODE", "2"),
            ("SLURM_STEP_RESV_PORTS", &port),
        ]);
        cluster.start_as(command, &[], &sh("[ $LOCAL_RANK = 0 ] || exit 3"));
    }
    assert_eq!(cluster.end(1), 1);
    let said = cluster.stderr(1);
    assert!(
        said.contains("failed (exitcode: 3) local_rank: 1 "),
        "{said}"
    );
}
