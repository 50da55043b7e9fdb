//! Tests of servers on several nodes, and of one server for the tasks of a node.

use rig::run::{Ended, Running};
use rig::{PYTHON, net};
use serde_json::{Value, json};

use crate::launch::model_server::{assert_over, beside, ranks_beside, server};

/// Starts two launchers on one machine, whose servers have the ports of their environment.
fn nodes(before: &str, rank: &str) -> [Running; 2] {
    let server = json!({
        "command": format!("{before} exec {PYTHON} server.py $PORT"),
        "health_url": "http://127.0.0.1:${oc.env:PORT}/health",
        "stop_timeout": 20,
    });
    let config = json!({"model_server": server}).to_string();
    let meeting = net::port();
    let rrun = ranks_beside(&Value::Null, 1, rank)
        .file("server.yaml", config)
        .program("eval --jobs jobs.json --config server.yaml --output out");
    [0, 1].map(|node| {
        let words = format!(
            "--nnodes 2 --node-rank {node} --master-addr 127.0.0.1 --master-port {meeting}"
        );
        let rrun = rrun.clone().words(words.as_str());
        rrun.env("NODE", node).env("PORT", net::port()).start()
    })
}

#[test]
fn every_node_has_its_own() {
    let rank = "until [ $(wc -l < starts) = 2 ]; do sleep 0.01; done; echo rank $RANK met";
    let ended = nodes("", rank).map(|node| node.wait().succeeds());
    assert_over(&ended[0], 2);
    let printed = ended.each_ref().map(|ended| ended.stdout.as_str());
    assert_eq!(printed, ["rank 0 met\n", "rank 1 met\n"]);
}

#[test]
fn a_server_that_fails_on_one_node_ends_the_launch_on_the_other() {
    // If node 0 has ranks, the rendezvous of both is complete.
    let before = "if [ $NODE = 1 ]; then until test -s pid.0; do sleep 0.01; done; exit 3; fi;";
    let rank = "echo $$ > pid.$RANK; exec sleep 10000";
    let [first, second] = nodes(before, rank).map(|node| node.wait().fails_with(1));
    assert_over(&first, 1);
    second.stderr_has("exited with code 3 before http://127.0.0.1:");
    first
        .stderr_has("the launch has failed on ")
        .stderr_has("model server");
}

#[test]
fn of_the_tasks_of_a_node_under_slurm_the_first_starts_it_and_the_others_wait() {
    let facts = "JOB_ID=7 STEP_ID=0 STEP_NUM_NODES=1 STEP_NODELIST=localhost STEP_NUM_TASKS=2 \
                 STEP_TASKS_PER_NODE=2 NODEID=0";
    let facts = facts
        .split_whitespace()
        .filter_map(|fact| fact.split_once('='));
    let rrun = beside(&server("slow"), "echo rank $RANK met $(wc -l < starts)");
    let rrun = facts.fold(rrun, |rrun, (name, value)| {
        rrun.env(&format!("SLURM_{name}"), value)
    });
    let rrun = rrun.env("SLURM_STEP_RESV_PORTS", net::port());
    let tasks = [0, 1].map(|task| {
        let rrun = rrun.clone().env("SLURM_PROCID", task);
        rrun.env("SLURM_LOCALID", task).start()
    });
    let ended: [Ended; 2] = tasks.map(|task| task.wait().succeeds());
    assert_over(&ended[0], 1);
    let printed = ended.each_ref().map(|ended| ended.stdout.as_str());
    assert_eq!(printed, ["rank 0 met 1\n", "rank 1 met 1\n"]);
    let [_, second] = ended;
    second.stderr_has("waiting for the model server of this node");
}
