//! Tests of servers on several nodes, and of one server for the tasks of a node.

use std::process::Command;

use serde_json::{Value, json};

use crate::launch::command::{PYTHON, Rrun};
use crate::launch::ended::Ended;
use crate::launch::model_server::{eval, eval_of_any, free_port, nothing_is_left, server, starts};
use crate::launch::running::Running;

/// Copies the binary beside the rank program of the test.
fn install(rrun: &Rrun) {
    let copy = Command::new("install")
        .arg(rig::rrun())
        .arg(rrun.path("bin/rrun"))
        .status();
    assert!(copy.is_ok_and(|status| status.success()));
}

/// Starts two launchers on one machine, whose ports come from their environment.
fn nodes(block: &Value, rank: &str) -> Vec<Running> {
    let meeting = free_port().to_string();
    let config = json!({"model_server": block}).to_string();
    let rrun = eval(&Value::Null, 1, rank).file("server.yaml", &config);
    let rrun = rrun.program(&[
        "eval",
        "--jobs",
        "jobs.json",
        "--config",
        "server.yaml",
        "--output",
        "out",
    ]);
    install(&rrun);
    let node = |node: &str| {
        let port = free_port().to_string();
        let script = format!(
            "export PORT={port} NODE={node}; shift; exec bin/rrun --nnodes 2 --node-rank {node} --master-addr 127.0.0.1 \
             --master-port {meeting} \"$@\""
        );
        rrun.start_below_as(node, &script)
    };
    ["0", "1"].map(node).into_iter().collect()
}

fn of_node(before: &str) -> Value {
    let url = "http://127.0.0.1:${oc.env:PORT}/health";
    json!({"command": format!("{before} exec {PYTHON} server.py $PORT"), "health_url": url, "stop_timeout": 20})
}

#[test]
fn every_node_has_its_own() {
    let rank = "echo rank $RANK met $(wc -l < starts)";
    let nodes = nodes(
        &of_node(""),
        &format!("until [ $(wc -l < starts) = 2 ]; do sleep 0.01; done; {rank}"),
    );
    let ended: Vec<Ended> = nodes
        .into_iter()
        .map(|node| node.wait().succeeds())
        .collect();
    assert_eq!(starts(&ended[0]).len(), 2);
    ended.iter().for_each(nothing_is_left);
    assert_eq!(
        (ended[0].stdout.as_str(), ended[1].stdout.as_str()),
        ("rank 0 met 2\n", "rank 1 met 2\n")
    );
}

#[test]
fn a_server_that_fails_on_one_node_ends_the_launch_on_the_other() {
    // If node 0 has ranks, the rendezvous of both is complete.
    let before = "if [ $NODE = 1 ]; then until test -s pid.0; do sleep 0.01; done; exit 3; fi;";
    let rank = "echo $$ > pid.$RANK; exec sleep 10000";
    let ended: Vec<Ended> = nodes(&of_node(before), rank)
        .into_iter()
        .map(|node| node.wait().fails_with(1))
        .collect();
    ended.iter().for_each(nothing_is_left);
    assert!(
        ended[1]
            .stderr
            .contains("exited with code 3 before http://127.0.0.1:"),
        "{}",
        ended[1].stderr
    );
    assert!(
        ended[0].stderr.contains("the launch has failed on ")
            && ended[0].stderr.contains("model server"),
        "{}",
        ended[0].stderr
    );
}

#[test]
fn of_the_tasks_of_a_node_under_slurm_the_first_starts_it_and_the_others_wait() {
    let rrun = eval_of_any(&server(&["slow"]), "echo rank $RANK met $(wc -l < starts)");
    let step = [
        ("JOB_ID", "7"),
        ("STEP_ID", "0"),
        ("STEP_NUM_NODES", "1"),
        ("STEP_NODELIST", "localhost"),
    ];
    let tasks = [
        ("STEP_NUM_TASKS", "2"),
        ("STEP_TASKS_PER_NODE", "2"),
        ("NODEID", "0"),
    ];
    let ports = free_port().to_string();
    let rrun = step
        .iter()
        .chain(&tasks)
        .chain(&[("STEP_RESV_PORTS", ports.as_str())])
        .fold(rrun, |rrun, (name, value)| {
            rrun.env(&format!("SLURM_{name}"), value)
        });
    install(&rrun);
    let task = |task: &str| {
        rrun.start_below_as(
            task,
            &format!(
                "export SLURM_PROCID={task} SLURM_LOCALID={task}; shift; exec bin/rrun \"$@\""
            ),
        )
    };
    let ended: Vec<Ended> = ["0", "1"]
        .map(task)
        .into_iter()
        .map(|task| task.wait().succeeds())
        .collect();
    assert_eq!(starts(&ended[0]).len(), 1);
    ended.iter().for_each(nothing_is_left);
    assert_eq!(
        [&*ended[0].stdout, &ended[1].stdout],
        ["rank 0 met 1\n", "rank 1 met 1\n"]
    );
    assert!(
        ended[1]
            .stderr
            .contains("waiting for the model server of this node"),
        "{}",
        ended[1].stderr
    );
}
