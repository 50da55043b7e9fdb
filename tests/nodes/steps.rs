//! Tests of evaluations in a step of SLURM on several nodes.

use rig::run::{Given, Signal};
use rig::threads::minds_signals;

use crate::nodes::cluster::Cluster;
use crate::nodes::evaluation;

/// Enough episodes to be interrupted in the middle.
const EPISODES: usize = 40_000;

/// Returns a launcher as a task of a step with two tasks.
fn task(given: Given, nodes: &str, node: usize, task: usize, local: usize) -> Given {
    let names = ["localhost", "one,two"][usize::from(nodes == "2")];
    let tasks = ["2", "1(x2)"][usize::from(nodes == "2")];
    given
        .env("SLURM_JOB_ID", 14)
        .env("SLURM_NODEID", node)
        .env("SLURM_PROCID", task)
        .env("SLURM_LOCALID", local)
        .env("SLURM_STEP_ID", 0)
        .env("SLURM_STEP_NODELIST", names)
        .env("SLURM_STEP_NUM_NODES", nodes)
        .env("SLURM_STEP_NUM_TASKS", 2)
        .env("SLURM_STEP_TASKS_PER_NODE", tasks)
}

/// Starts an evaluation by two launchers, each the task of a node.
fn started() -> Cluster {
    let mut cluster = Cluster::new();
    evaluation::write_jobs(&cluster, EPISODES);
    for node in [0, 1] {
        let words = format!(
            "{} --shard episodes --export-mode=none --no-video",
            evaluation::EVAL
        );
        let given = cluster.fixed_node(node, "2 --nproc-per-node 1");
        let given = given.program(words.as_str());
        cluster.start(task(given, "2", node, node, 0));
    }
    cluster
}

/// Checks that both launchers end in order, and leave a report of what is there.
#[track_caller]
fn end_in_order(cluster: &mut Cluster) {
    cluster.all_end_with(1, &[0, 1]);
    let said = cluster.all_stderr();
    assert_eq!(evaluation::report(cluster)["partial"], true, "{said}");
}

#[test]
fn a_step_of_two_nodes_that_is_told_to_stop_says_how_to_go_on_and_leaves_a_report() {
    let mut cluster = started();
    evaluation::begin(&mut cluster);
    cluster.signal(0, Signal::TERM);
    cluster.signal(1, Signal::TERM);
    end_in_order(&mut cluster);
    // The second may hear of the end of the first before it hears its own signal.
    cluster.says(0, &["shutting down workers (SIGTERM)", "to resume: rrun "]);
    cluster.says(1, &["to resume: rrun "]);
}

#[test]
fn a_node_whose_host_is_told_to_stop_says_how_to_go_on_too() {
    let mut cluster = started();
    evaluation::begin(&mut cluster);
    cluster.signal(0, Signal::TERM);
    end_in_order(&mut cluster);
    cluster.says(
        1,
        &[
            "which hosts the rendezvous, got SIGTERM",
            "to resume: rrun ",
        ],
    );
}

#[test]
fn a_step_of_two_nodes_that_is_told_to_stop_at_once_ends_in_order() {
    let mut cluster = started();
    cluster.until("the launchers have begun", |cluster| {
        [0, 1].iter().all(|&node| minds_signals(cluster.pid(node)))
    });
    cluster.signal(0, Signal::TERM);
    cluster.signal(1, Signal::TERM);
    end_in_order(&mut cluster);
    cluster.says(0, &["to resume: rrun "]);
}

#[test]
fn of_a_rank_that_is_a_task_a_failure_names_the_local_rank() {
    let mut cluster = Cluster::new();
    let port = cluster.port();
    for number in [0, 1] {
        let given = cluster.given().sh("[ $LOCAL_RANK = 0 ] || exit 3");
        let given = task(given, "1", 0, number, number);
        cluster.start(given.env("SLURM_STEP_RESV_PORTS", port));
    }
    cluster.all_end_with(1, &[1]);
    cluster.says(1, &["failed (exitcode: 3) local_rank: 1 "]);
}
